#!/bin/sh
# The servers that tests talk to: a Mosquitto broker and a PostgreSQL server, if they are not there.
#   tests/services/install.sh [DIR]    without the right to install packages they are unpacked into DIR
# ROOT names another root folder to look in (for the test of this script).
set -eu
into=${1:-.venv/services}
root=${ROOT:-}

is_there() { # any of these paths; a pattern that matches nothing is a path that is not there
    for path in "$@"; do [ ! -x "$path" ] || return 0; done
    return 1
}
has_mosquitto() {
    command -v mosquitto >/dev/null 2>&1 || is_there "$root/usr/sbin/mosquitto" "$into/usr/sbin/mosquitto"
}
has_postgresql() {
    command -v postgres >/dev/null 2>&1 \
        || is_there "$root"/usr/lib/postgresql/*/bin/postgres "$into"/usr/lib/postgresql/*/bin/postgres
}

wanted=""
has_mosquitto || wanted="$wanted mosquitto"
has_postgresql || wanted="$wanted postgresql"
[ -n "$wanted" ] || exit 0

command -v apt-get >/dev/null 2>&1 || { echo "install$wanted: there is no apt-get here" >&2; exit 2; }
echo "installing$wanted ..." >&2
if [ "$(id -u)" = 0 ]; then
    # Servers are started by the tests, on ports and in folders of their own; none is to start by itself.
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && trap 'rm -f "$policy"' EXIT; }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >&2
else
    mkdir -p "$into"
    names=$(apt-get install -s --no-install-recommends $wanted | sed -n 's/^Inst \([^ ]*\).*/\1/p')
    [ -n "$names" ] || { echo "apt-get knows no$wanted: run 'sudo apt-get update' once, then again" >&2; exit 2; }
    (cd "$into" && apt-get download -qq $names >&2 && for package in *.deb; do dpkg -x "$package" . && rm "$package"; done)
fi
has_mosquitto && has_postgresql

#!/bin/sh
# The servers that tests talk to: a Mosquitto broker and a PostgreSQL server, if they are not there.
#   tests/services/install.sh [DIR]    without the right to install packages they are unpacked into DIR
set -eu
into=${1:-.venv/services}

has_mosquitto() {
    command -v mosquitto >/dev/null 2>&1 || [ -x /usr/sbin/mosquitto ] || [ -x "$into/usr/sbin/mosquitto" ]
}
has_postgresql() {
    command -v postgres >/dev/null 2>&1 \
        || ls /usr/lib/postgresql/*/bin/postgres "$into"/usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1
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
    (cd "$into" && apt-get download $names >&2 && for package in *.deb; do dpkg -x "$package" .; done)
fi
has_mosquitto && has_postgresql

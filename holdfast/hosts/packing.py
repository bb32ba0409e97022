"""How the bytes of a container are written: compressed, small ones with a preset dictionary.

A checkpoint of a small state is mostly form: names of fields, the frame around a few rows. `_WORDS` holds what such
containers have in common (an empty head, a row of each common type), so only what differs is written. Larger ones do
not need it.

`_WORDS` is part of the format: containers that were written with it cannot be read with
another one. Pure.
"""

from __future__ import annotations

import base64
import struct
import zlib

import pyarrow as pa

from holdfast.errors import invariant

__all__ = ["pack", "unpack"]

_SMALL, _LARGE = b"hfc3s", b"hfc3l"
_BEFORE = b"holdfast checkpoint 2\n"  # the format before this one, which is still read
# As far as deflate looks back: beyond it the words would be forgotten.
_SMALL_MAX = 24 * 1024
_RAW = -zlib.MAX_WBITS  # without zlib's own head and sum: the name of a container has its digest
_WORDS = zlib.decompress(base64.b85decode(
    b"c-rk(F>f0;6z0jYd<fJ)D2zgb2Z89|L6Pt3q*06jvC$0P8U!sm7=}Sflx+BPC*1Lp7-@k1fQ}hDWXM!x?3f?mp`)iv88YMtc*x)(sQVttlPLDiu^ZS40@I"
    b"-Q$oKK_@x90Q&TIGY|M-hf$T2ihBBVyJT_IOVh0GEcC}>W3yk3RhvR+@6G_axLx(mO^bBU6Z@jyKJ3i@^w^!h9jtzEvCz`O#z2Y?3jcR>FR{kq<_{}1Rxo"
    b"C?ZW&}&KqLbm!*JcxwgAt5gTcc`${c>{~*;(Qi*$c7xxdkeUQV~L$bxphM>jyr-6k*)&f?s2h9q?2gK5!(jbNMTDTvr!-uZR3(TX&V%UwtI0rxudO1KVSo"
    b"-{{YN^!nw9BX3&0YPg>H2UeW6{&=Ti!(knIXJ9Xy;>m0O=qRVoQad70QdrDi7Z*(M7r8F{Amb%^}WbBc;_B;CKwxfLSkV*TR6gSrzo$(!}Tg}j!XnUEhZt"
    b"ZVa{DyVTqQzgd_@2f0EPmVKw=MpvrO&#BU$^+#UdO^+^gLU8Wbqw~@8rn9ky)~2UeW%mLR3{`B-K<bfj7}^-x}|$R?-{wcyCJDW&Zin^UosqeNEP+HKQ^e"
    b"Iu~D=)&Xz?<5Rq)5gBhz85zHV-c`dh^9B~r1_*gCWhrm86?P`i8v*Es^q&$_B0VEI8peI<TK5MmNHOFxt3EYkFXTpu>A@1&SNJP79v`Jhlszljp14}p(eU"
    b"$6KNNYtlovf<?%c@CGRKQkRHD^_O7x!mw-Q}FLnSI&FRD!L2P#wToGXuc&$<7R`AZ*JIc9R!Co&K3Oc%zZJ9B5O6t}glvRKcA|K&_q-1Dp!mpS3n<%D`}W"
    b"qA1sD#JVg4q$wSeEkA(-@H*z8z)3T=7GB>cz4Jd1_ODey*n!K)@<fk%UjQlD63m|5eXKIBS2aApa3twH8_{L>>K#gdK7KBoAdqA&@cYcDKflQkl|nFWcca"
    b"{8NPhZ8Q%TK|2@omR4(XSKdTnzm}Thc@$BF7f9nH(bMh+N<-7b`-{l)8%e0Sa8tw?XLTQuoQPkb0D}IwEJl<h}B>ORZze}pa5+M34NO(38aSC*th6!DHOt"
    b"E`(Wn+VSs`=MEqfJe)wOAZS4{6hbKfmcOFSj>0pFC;OK@@`Q4Vs9UvthEdl!<F4f^`C}_ic`mK*hWp#XZy@l*&%-(uvZr$Kt)M6qNLDPOH$QJK-o5iPV}l"
    b"@#^vjNqYWw%hzvwf3tmyb-F#?hZ8j@h!P<Qx(R1TsZcVM2|zbI359p|1Xnany4$?Fo1{ZDHeM4>5?pQaVA=&em5>0|x0DoQFk$N5@?j}@7)p&lV4<du8Yd"
    b"$b?=H#HmOS|Lw_4q877ln24KxHjI1zH~U&5+MF8"
))  # fmt: skip


def pack(raw: bytes) -> bytes:
    if len(raw) > _SMALL_MAX:
        return _LARGE + struct.pack("<Q", len(raw)) + pa.compress(raw, codec="zstd", asbytes=True)
    deflate = zlib.compressobj(9, zlib.DEFLATED, _RAW, 9, zdict=_WORDS)
    return _SMALL + deflate.compress(raw) + deflate.flush()


def unpack(content: bytes) -> bytes:
    if content.startswith(_SMALL):
        inflate = zlib.decompressobj(_RAW, zdict=_WORDS)
        raw = inflate.decompress(content[len(_SMALL) :]) + inflate.flush()
        invariant(inflate.eof, "a container of a backup ends too soon")
        return raw
    head = next((head for head in (_LARGE, _BEFORE) if content.startswith(head)), None)
    invariant(head is not None, "a container of a backup does not begin as one")
    size = struct.unpack_from("<Q", content, len(head))[0]
    return pa.decompress(memoryview(content)[len(head) + 8 :], size, codec="zstd", asbytes=True)

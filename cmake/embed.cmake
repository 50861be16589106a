# cmake -DIN=file -DOUT=folder -DSYMBOL=name -P embed.cmake: writes name.c and name.h holding the file.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "    \\1\n" bytes "${bytes}")
file(WRITE ${OUT}/${SYMBOL}.h
"#pragma once
#include <stddef.h>
extern const unsigned char ${SYMBOL}[];
extern const size_t ${SYMBOL}_len;
")
file(WRITE ${OUT}/${SYMBOL}.c
"#include \"${SYMBOL}.h\"
const unsigned char ${SYMBOL}[] = {
${bytes}
};
const size_t ${SYMBOL}_len = sizeof ${SYMBOL};
")

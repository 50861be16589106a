#!/usr/bin/env python3
"""Writes images.inc: small JPEG and PNG files, and what Pillow makes of them. Needs Pillow and numpy; its output is kept, so that
the tests need neither.

usage: make_images.py >images.inc
"""
import io
import struct
import zlib

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 7, 5


def picture():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([x * 36, y * 60, 255 - x * 20 - y * 10], axis=-1).astype(np.uint8)


def encode(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def interlaced(pixels):
    """A PNG of Adam7's seven passes, which Pillow does not write."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    parts = [pixels[y::dy, x::dx] for x, y, dx, dy in passes]
    rows = b''.join(b'\0' + row.tobytes() for part in parts if part.size for row in part)
    head = struct.pack('>IIBBBBB', WIDTH, HEIGHT, 8, 2, 0, 0, 1)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')


def array(name, data):
    data = bytes(data)
    print(f'static const uint8_t {name}[] = {{')
    for i in range(0, len(data), 24):
        print('    ' + ' '.join(f'{b},' for b in data[i:i + 24]))
    print('};')


def grey(pixels):
    return np.asarray(Image.fromarray(pixels).convert('L'))


rgb = picture()
image = Image.fromarray(rgb)
alpha = np.dstack([rgb, np.full(rgb.shape[:2], 128, np.uint8)])
array('rgb', rgb.tobytes())
array('rgb_as_grey', grey(rgb).tobytes())
array('png_rgb', encode(image, 'PNG'))
array('png_interlaced', interlaced(rgb))
array('png_rgba', encode(Image.fromarray(alpha), 'PNG'))
array('png_grey', encode(Image.fromarray(grey(rgb)), 'PNG'))
array('png_grey16', encode(Image.fromarray((grey(rgb).astype(np.uint16) << 8) | 17), 'PNG'))
bits = Image.fromarray(((grey(rgb) > 100) * 255).astype(np.uint8)).convert('1')
array('png_1bit', encode(bits, 'PNG'))
array('bits_as_grey', np.asarray(bits.convert('L')).tobytes())
palette = image.quantize(8)
array('png_palette', encode(palette, 'PNG'))
array('palette_as_rgb', np.asarray(palette.convert('RGB')).tobytes())
jpeg = encode(image, 'JPEG', quality=95, subsampling=0)
array('jpeg_rgb', jpeg)
array('jpeg_as_rgb', np.asarray(Image.open(io.BytesIO(jpeg))).tobytes())
array('jpeg_progressive', encode(image, 'JPEG', quality=95, subsampling=0, progressive=True))
jpeg_grey = encode(Image.fromarray(grey(rgb)), 'JPEG', quality=95)
array('jpeg_grey', jpeg_grey)
array('jpeg_grey_as_grey', np.asarray(Image.open(io.BytesIO(jpeg_grey))).tobytes())
cmyk = encode(image.convert('CMYK'), 'JPEG', quality=95)
array('jpeg_cmyk', cmyk)
array('cmyk_as_rgb', np.asarray(Image.open(io.BytesIO(cmyk)).convert('RGB')).tobytes())
for w, h in ((3, 2), (14, 11)):
    array(f'bilinear_{w}x{h}', np.asarray(image.resize((w, h), Image.BILINEAR)).tobytes())
    array(f'nearest_{w}x{h}', np.asarray(image.resize((w, h), Image.NEAREST)).tobytes())
array('crop_3x3', np.asarray(image.resize((3, 3), Image.BILINEAR, box=(1, 1, 5.5, 4))).tobytes())

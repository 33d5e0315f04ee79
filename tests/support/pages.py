"""What a page carries, read from its document."""

import base64
import gzip
import json
import re

DATA = re.compile(r'id="data">([^<]*)</script>')


def unpacked(document):
    return json.loads(gzip.decompress(base64.b64decode(DATA.search(document)[1])))

"""Makes the wheel of this folder (PEP 517), without any package: `pip install ./python` needs no network for its build."""
import base64
import hashlib
import zipfile
from pathlib import Path

TOP = Path(__file__).parent
NAME, VERSION = "millrace", "0.1.0"
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Clients of Millrace and any Open Inference Protocol server: inferences, and rows through models
Requires-Python: >=3.9
Provides-Extra: arrow
Requires-Dist: pyarrow>=16; extra == "arrow"
Provides-Extra: client
Requires-Dist: numpy>=1.22; extra == "client"
"""
WHEEL = """Wheel-Version: 1.0
Generator: millrace
Root-Is-Purelib: true
Tag: py3-none-any
"""


def files():
    yield "millrace.py", (TOP / "millrace.py").read_bytes()
    for path in sorted((TOP / "millrace_client").iterdir()):
        if path.is_file():
            yield f"millrace_client/{path.name}", path.read_bytes()
    yield f"{INFO}/METADATA", METADATA.encode()
    yield f"{INFO}/WHEEL", WHEEL.encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")
            wheel.writestr(path, data)
        wheel.writestr(f"{INFO}/RECORD", "\n".join([*record, f"{INFO}/RECORD,,", ""]))
    return name

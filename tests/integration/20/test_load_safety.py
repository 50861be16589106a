"""What a configuration, a model file or a load request cannot have: files outside, settings with side effects, code."""
import base64
import zlib
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from lib import onnxgen, repo
from lib.control import Control, GrpcControl

ADDER = {"backend": "onnxruntime", "max_batch_size": 0}


def everything(*folders):
    return sorted(str(p) for folder in folders for p in Path(folder).rglob("*"))


def with_parameter(key, value):
    return onnxgen.ADDER_CONFIG + f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


# ---- settings of ONNX Runtime ----

# Those that name files, those that change what a session is, and one that no release has.
REFUSED = {
    "session.optimized_model_filepath": "{dir}/written.onnx",
    "session.optimized_model_external_initializers_file_name": "written.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1",
    "session.save_model_format": "ORT",
    "session.save_external_prepacked_constant_initializers": "1",
    "session.enable_profiling": "{dir}/written",
    "session.collect_node_memory_stats_to_file": "{dir}/written.csv",
    "session.resource_cuda_partitioning_settings": "0,{dir}/written.csv",
    "session.node_partition_config_file": "{dir}/written.json",
    "session.model_external_initializers_file_folder_path": "/etc",
    "session.debug_layout_transformation": "1",
    "session.compile_only": "1",
    "session.load_model_format": "ORT",
    "session.use_env_allocators": "1",
    "session.use_ort_model_bytes_directly": "1",
    "session.use_ort_model_bytes_for_initializers": "1",
    "session.use_memory_mapped_ort_model": "1",
    "session.disable_cpu_ep_fallback": "1",
    "session.log_severity_level": "0",
    "session.intra_op_thread_affinities": "1;2",
    "session.no_such_setting": "1",
    "session.": "1",
    "ep.context_enable": "1",
    "ep.context_file_path": "{dir}/written.onnx",
    "ep.context_model_external_initializers_file_name": "written.bin",
    "ep.nnapi.partitioning_stop_ops": "Add",
    "optimization.minimal_build_optimizations": "save",
    "optimization.memory_optimizer_config": "{dir}/written.json",
    "mlas.no_such_setting": "1",
}


@pytest.mark.parametrize("way", ["config.pbtxt", "request"])
def test_settings_that_are_refused(explicit, models, tmp_path, way):
    server, control = explicit()
    for key, value in REFUSED.items():
        value = value.format(dir=tmp_path)
        repo.add(models, "m", with_parameter(key, value) if way == "config.pbtxt" else "", files={"1/model.onnx": onnxgen.adder(1)})
        before = everything(models, tmp_path)
        config = {**ADDER, "parameters": {key: {"string_value": value}}} if way == "request" else None
        reply = control.load("m", config)
        assert reply.status == 400 and f"'{key}'" in reply.error and "refused" in reply.error, (key, reply)
        assert everything(models, tmp_path) == before, key
        assert not control.model_ready("m"), key


def test_settings_that_name_files_together(explicit, models, tmp_path):
    """The pair that writes a file of any name with bytes of the model's choice."""
    repo.add(models, "m", "", files={"1/model.onnx": onnxgen.adder(1)})
    server, control = explicit()
    pair = {"session.optimized_model_filepath": f"{tmp_path}/x.onnx",
            "session.optimized_model_external_initializers_file_name": "libmillrace_x.so",
            "session.optimized_model_external_initializers_min_size_in_bytes": "1"}
    reply = control.load("m", {**ADDER, "parameters": {k: {"string_value": v} for k, v in pair.items()}})
    assert reply.status == 400 and "refused" in reply.error
    assert not list(tmp_path.rglob("*.so")) and not list(tmp_path.rglob("x.onnx"))


GOOD = {"session.disable_prepacking": "1", "session.disable_quant_qdq": "1", "session.disable_double_qdq_remover": "1",
        "session.enable_quant_qdq_cleanup": "1", "session.qdqisint8allowed": "0", "session.qdq_matmulnbits_accuracy_level": "4",
        "session.x64quantprecision": "1", "session.disable_aot_function_inlining": "1",
        "session.use_device_allocator_for_initializers": "1", "session.inter_op.allow_spinning": "0",
        "session.intra_op.allow_spinning": "0", "session.force_spinning_stop": "1", "session.dynamic_block_base": "4",
        "session.strict_shape_type_inference": "1", "session.allow_released_opsets_only": "1",
        "optimization.enable_gelu_approximation": "1", "optimization.disable_specified_optimizers": "ConstantFolding;NotOne",
        "mlas.enable_gemm_fastmath_arm64_bfloat16": "1", "memory.enable_memory_arena_shrinkage": "cpu:0", "my.own": "anything"}


def test_settings_that_are_handed_on(explicit, models):
    server, control = explicit()
    for key in GOOD:
        repo.add(models, "m", with_parameter(key, GOOD[key]), files={"1/model.onnx": onnxgen.adder(1)})
        reply = control.load("m")
        assert reply.status == 200, (key, reply)
        assert control.answer("m")[0] == [2, 3], key
        control.unload("m").ok()


@pytest.mark.parametrize("key, value", [("session.disable_prepacking", "yes"), ("session.disable_prepacking", "2"),
                                        ("session.dynamic_block_base", "-1"), ("session.dynamic_block_base", "99999999999999999999"),
                                        ("memory.enable_memory_arena_shrinkage", "cpu:9"),
                                        ("memory.enable_memory_arena_shrinkage", "gpu:0")])
def test_values_out_of_range(explicit, models, key, value):
    repo.add(models, "m", with_parameter(key, value), files={"1/model.onnx": onnxgen.adder(1)})
    server, control = explicit()
    reply = control.load("m")
    assert reply.status == 400 and key in reply.error and "expected" in reply.error, reply


# ---- names of files in configurations ----


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a/../../b", "./a", "a//b"])
@pytest.mark.parametrize("field", ["label_filename", "input_data_file", "cc_model_filenames", "default_model_filename"])
def test_names_of_files_stay_below_the_folder(explicit, models, field, name):
    """Also those of files that this server would not open."""
    output, extra = "", ""
    if field == "label_filename":
        output = f'label_filename: "{name}"'
    elif field == "input_data_file":
        extra = f'model_warmup {{ name: "w" count: 0 inputs {{ key: "INPUT0" value {{ data_type: TYPE_INT32 dims: [1] input_data_file: "{name}" }} }} }}'
    elif field == "cc_model_filenames":
        extra = f'cc_model_filenames {{ key: "7.5" value: "{name}" }}'
    else:
        extra = f'default_model_filename: "{name}"'
    repo.add(models, "m", repo.config(outputs=[repo.tensor("OUTPUT0", extra=output)], extra=extra))
    server, control = explicit()
    reply = control.load("m")
    assert reply.status == 400 and field in reply.error, reply


# ---- backends ----


class Loader:
    def __init__(self, kind, server):
        self.made = GrpcControl(server) if kind == "grpc" else Control(server)

    def error(self, *args):
        answer = self.made.load(*args)
        if isinstance(answer, tuple):
            return answer[1]
        return "" if answer is None or answer.status == 200 else answer.error


@pytest.fixture(params=["rest", "grpc"])
def loader(request, models, start):
    loaders = []

    def make(*args):
        loaders.append(Loader(request.param, start(models, *args, mode="explicit")))
        return loaders[-1]

    yield make
    [one.made.close() for one in loaders]


IDENTITY = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
            "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
NOT_CHOSEN = "may not choose backend 'identity'"


def test_backends_that_a_load_request_may_not_choose(loader, models):
    """By the config, by the name of a file that comes along, by a platform, or by the name of the model."""
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    it = loader()
    nameless = {k: v for k, v in IDENTITY.items() if k != "backend"}
    assert NOT_CHOSEN in it.error("adder", IDENTITY)
    assert "--allow-backend=identity" in it.error("adder", IDENTITY)
    assert NOT_CHOSEN in it.error("new", IDENTITY, {"1/x": b""})
    assert NOT_CHOSEN in it.error("new", nameless, {"1/model.identity": b""})
    assert NOT_CHOSEN in it.error("new", {**nameless, "default_model_filename": "model.identity"}, {"1/x": b""})
    assert NOT_CHOSEN in it.error("new.identity", nameless, {"1/x": b""})
    assert it.error("adder") == ""
    assert it.error("new", ADDER, {"1/model.onnx": onnxgen.adder(2)}) == "", "a model of the repository uses it"


@pytest.mark.parametrize("named", ["--allow-backend=identity", "a model", "a model without config"])
def test_backends_that_it_may_choose(loader, models, named):
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    if named == "a model":
        repo.add(models, "other")
    elif named == "a model without config":
        repo.add(models, "other", "", files={"1/model.identity": b""})
    it = loader(*[named] if named.startswith("--") else [])
    assert it.error("new", IDENTITY, {"1/x": b""}) == ""


def test_backend_with_settings_is_named(loader, models):
    it = loader("--backend-config=onnxruntime,intra_op_thread_count=1")
    assert it.error("new", ADDER, {"1/model.onnx": onnxgen.adder(2)}) == ""


def test_models_of_the_repository_have_any_backend(loader, models):
    repo.add(models, "m")
    assert loader().error("m") == ""


# ---- what ONNX Runtime reads of a model file ----


def weights(location):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": "0", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def reader(location):
    graph = helper.make_graph([helper.make_node("Add", ["INPUT0", "w"], ["OUTPUT0"])], "g",
                              [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, [4])],
                              [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, [4])], [weights(location)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="ORTM").SerializeToString()


@pytest.mark.few(3)
@pytest.mark.parametrize("file", ["model.onnx", "model.pb", "model.ORT.onnx", "ort"])
@pytest.mark.parametrize("location", ["../../../secret.bin", "/etc/passwd"])
def test_format_is_told_by_the_name(explicit, models, file, location):
    """Bytes 4 to 7 are those of ONNX Runtime's own format, and the file is protobuf."""
    model = reader(location)
    assert model[4:8] == b"ORTM"
    (models.parent / "secret.bin").write_bytes(bytes(16))
    repo.add(models, "m", f'backend: "onnxruntime" default_model_filename: "{file}"', files={f"1/{file}": model})
    server, control = explicit()
    reply = control.load("m")
    assert reply.status == 400 and "external data" in reply.error, reply


@pytest.mark.parametrize("file", ["model.ort", "model.ORT"])
def test_own_format_is_not_read_as_protobuf(explicit, models, file):
    """Nor the other way round: nothing of it was read."""
    repo.add(models, "m", f'backend: "onnxruntime" default_model_filename: "{file}"', files={f"1/{file}": reader("../../../secret.bin")})
    (models.parent / "secret.bin").write_bytes(bytes(16))
    server, control = explicit()
    reply = control.load("m")
    assert reply.status == 400 and "external data" not in reply.error, reply


# OUTPUT0 = INPUT0 + 1 in ONNX Runtime's own format, deflated.
OWN_FORMAT = ('c-n1Lv2GJV5S?=_@nOtiL<$R87Da?opi@8*LJ<WBC@3HnvZWLhSm(n&$-c9WBQX*Z9iogV5G5s|rr-nkgcSaOd;ldy!trKz&fYt-'
              '(!1TAeKT)%XY3{s?LY56#YA;#01j3*W>WY9+*>EQah_#1)|NUY`h|T%)@<W-'
              '71(<)80_8JrBj?c5`)jXz#6avTo*gh2Gpwfs$n^z?JRU`6@L>RO?*k|XwIg@%Jg`D4C0>(sZ&xuTkvWrKYc6hGXUos@Uuc{Z;_r)f%_G`Z;Jhqid0j%a#l6T'
              '+a`0gk;hHiR(b?QDrmMPPsSFo3*2Qb-'
              '~e!elQsQ52S(J2<dEac(l!Sl+tN8d?DQVb0{=}K#!)AU55qx_ki0X>K;^;qIWUqte9v@^ejwg$S+m?%tT%+y&Wd&SWbb0;G;LKyqHz!n(^39jx<>q7j@15Br'
              'u#+Lxvt*R5nqn+p``N}`?~UPphKLzu9hWt;W>hWYiRMCoESB`DE6hUThLwhpuNb$GVC?6Hx@CgDx;c|sC@Ulcl2;o7m)OUD{=C8EkiE{74Eit3s&9lbvwQ8&'
              'ceoVo;*_~x`6dN9CUyd@SA_1z%lSbdXIhPf3qytu_cc<8G6&VX`J{Yub&2yI?Rf^tAHO*yh-RM@$2|i>P7zO$fxZR@7fA4m`#HuoCHzYAEUoZe15Bb=*3Yq^'
              'QK8~7zRgPn)JgcjE2m4Y4CHOOJxo0KmLbzc{Mi8v(@|O98=d(zh3=6v~KWg27fYU9#>fNu9Wo6THXQv0TiFF`~')


@pytest.mark.parametrize("file, serves", [("model.ort", True), ("model.onnx", False)])
def test_own_format(explicit, models, file, serves):
    repo.add(models, "m", onnxgen.ADDER_CONFIG + f'default_model_filename: "{file}"', files={f"1/{file}": zlib.decompress(base64.b85decode(OWN_FORMAT))})
    server, control = explicit()
    assert (control.load("m").status == 200) == serves
    assert not serves or control.answer("m")[0] == [2, 3]


@pytest.mark.parametrize("location", ["*/_ORT_MEM_ADDR_/*", "*/_ORT_LE_MEM_ADDR_/*"])
def test_addresses_as_files(explicit, models, location):
    """ONNX Runtime takes such a name for memory; a file of that name does not make it one of the model's."""
    repo.add(models, "m", "", files={"1/model.onnx": reader(location), f"1/{location}": bytes(16)})
    server, control = explicit("--allow-backend=onnxruntime")
    for reply in (control.load("m"), control.load("m", ADDER, {"1/model.onnx": reader(location), f"1/{location}": bytes(16)})):
        assert reply.status == 400 and "external data" in reply.error, reply
    repo.add(models, "good")
    assert control.load("good").status == 200


def test_weights_of_other_models(explicit, models):
    """External data goes no way up, wherever that leads."""
    repo.add(models, "other", onnxgen.ADDER_CONFIG, files={"1/w.bin": bytes(16)})
    repo.add(models, "m", "", files={"1/model.onnx": reader("../../other/1/w.bin")})
    server, control = explicit()
    reply = control.load("m")
    assert reply.status == 400 and "external data" in reply.error, reply

"""Device and precision: auto picks what the machine is good at, nonsense is refused by name."""

import pytest
import torch

from training.device import has_native_bfloat16, pick_device, pick_dtype
from training.errors import InputError


def test_auto_picks_a_gpu_and_bfloat16_where_the_hardware_has_them(monkeypatch: pytest.MonkeyPatch):
    assert pick_device("cpu") == torch.device("cpu")
    expected = (
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )
    assert pick_device("auto").type == expected
    cpu = torch.device("cpu")
    assert pick_dtype("auto", cpu) == (
        torch.bfloat16 if has_native_bfloat16("cpu") else torch.float32
    )
    assert not has_native_bfloat16("mps")
    # As with ATEN_CPU_CAPABILITY=avx2, where products in bfloat16 or of int8 to bfloat16 are a loop
    # in C++.
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not has_native_bfloat16.__wrapped__("cpu")


@pytest.mark.parametrize("name", ["cuda:77", "meta", "tpu", "", "cpu:x", "CPU please"])
def test_a_device_that_is_not_there_is_named(name: str):
    with pytest.raises(InputError, match="cannot be used on this machine") as caught:
        pick_device(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["float16", "int4", "", "FLOAT32"])
def test_another_dtype_is_refused_with_the_choices(name: str):
    with pytest.raises(InputError, match="choose auto, float32, bfloat16, int8"):
        pick_dtype(name, torch.device("cpu"))

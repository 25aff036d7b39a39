"""What numbers the large products of a network are computed in."""

import torch


def select_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the precision that a device computes in under the setting `precision`."""
    if name == "auto":
        name = "bfloat16" if computes_in_bfloat16(device) else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def precision_in_use(name: str, device: torch.device) -> str:
    """Return the same as a setting: "auto" would not say how scores were computed."""
    return str(select_precision(name, device)).removeprefix("torch.")


def computes_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for it: elsewhere it is emulated, and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return bool(torch.cpu.get_capabilities().get("avx512_bf16", False))

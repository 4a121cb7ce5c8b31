"""DLPack and the buffer protocol, both ways, and the lifetimes of what is shared."""
import array
import gc
import weakref

import numpy as np
import polyphase as pp
import pytest


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64])
@pytest.mark.parametrize("read", [pp.from_dlpack, pp.from_buffer])
def test_numpy_arrays_are_shared(dtype, read):
    a = np.arange(12).astype(dtype).reshape(3, 4)
    x = read(a)
    assert x.shape == (3, 4) and x.data_ptr == a.ctypes.data
    a[1, 2] = 77
    assert x[1, 2].item() == 77
    x[0] = 5
    assert (a[0] == 5).all()


def test_strides_of_other_libraries():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (a.transpose(2, 0, 1), a[:, ::2], a[1:, :, 1::2]):
        for read in (pp.from_dlpack, pp.from_buffer):
            assert np.array_equal(read(view).numpy(), view)
    with pytest.raises(pp.ShapeError, match="strides"):
        pp.from_buffer(a[:, ::-1])


def test_tensors_are_shared_with_numpy():
    x = pp.arange(6).reshape((2, 3))
    for a in (x.numpy(), np.asarray(x), np.asarray(memoryview(x)), np.from_dlpack(x)):
        assert a.shape == (2, 3) and a.dtype == np.float32 and a.ctypes.data == x.data_ptr
    a = x.numpy()
    a[1, 1] = 50
    assert x[1, 1].item() == 50
    assert np.array_equal(x.transpose(0, 1).numpy(), a.T)
    assert pp.tensor(1.5).numpy().shape == () and pp.zeros((0, 3)).numpy().shape == (0, 3)


def test_memory_lives_as_long_as_any_side():
    a = pp.arange(1000).numpy()  # the tensor is gone
    gc.collect()
    assert a.sum() == 499500
    source = np.arange(1000, dtype=np.float32)
    alive = weakref.ref(source)
    for read in (pp.from_dlpack, pp.from_buffer):
        x = read(source)[10:]
    del source
    gc.collect()
    assert alive() is not None and x[0].item() == 10
    del x
    gc.collect()
    assert alive() is None


def test_a_capsule_that_nobody_takes_is_freed():
    before = pp.memory_stats()["live_blocks"]
    for version in (None, (1, 0)):
        capsule = pp.zeros((100,)).__dlpack__(max_version=version)
        assert pp.memory_stats()["live_blocks"] == before + 1
        assert ("versioned" in repr(capsule)) == (version is not None)
        del capsule
        assert pp.memory_stats()["live_blocks"] == before


def test_legacy_capsules_are_read():
    class Old:
        """A producer before DLPack 1: no max_version."""

        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__()

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = pp.arange(4)
    assert pp.from_dlpack(Old(x)).data_ptr == x.data_ptr
    assert pp.from_dlpack(x).data_ptr == x.data_ptr


def test_pytorchs_tensors_are_shared():
    torch = pytest.importorskip("torch", reason="there is no PyTorch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        source = torch.arange(6).to(dtype).reshape(2, 3)
        x = pp.from_dlpack(source.T)
        again = torch.from_dlpack(x)
        assert x.shape == (3, 2) and x.data_ptr == source.data_ptr() == again.data_ptr() and again.dtype == dtype
        x[2, 1] = 9
        assert source[1, 2] == 9
    with pytest.raises((RuntimeError, BufferError)):  # which of them depends on PyTorch's version
        pp.from_dlpack(torch.ones(2, requires_grad=True))


def test_read_only_memory_is_copied():
    a = np.arange(4, dtype=np.float32)
    a.flags.writeable = False
    for read in (pp.from_dlpack, pp.from_buffer):
        try:
            x = read(a)
        except BufferError:  # NumPy 1 does not export it
            continue
        x[0] = 9
        assert a[0] == 0
    assert pp.from_buffer(array.array("d", [1, 2])).tolist() == [1, 2]


def test_copies_by_tensor():
    a = np.arange(4, dtype=np.float64)
    x = pp.tensor(a)
    a[0] = 9
    assert x.dtype == "f64" and x[0].item() == 0
    for small in (np.arange(6, dtype=np.int32).reshape(2, 3), np.array([[True, False]]), np.zeros((0, 2), np.uint8)):
        assert pp.tensor(small).dtype == "i64" and pp.tensor(small).tolist() == small.astype(int).tolist()
        assert pp.tensor(small, dtype="f32").dtype == "f32"
    assert pp.tensor(array.array("h", [-5, 7]), dtype="f32").tolist() == [-5, 7]
    assert pp.tensor(pp.arange(3), dtype="f16").dtype == "f16" and pp.tensor(np.float32(2)).item() == 2


@pytest.mark.parametrize("make, error, text", [
    (lambda: pp.from_dlpack([1, 2]), TypeError, "__dlpack__"),
    (lambda: pp.from_buffer([1, 2]), TypeError, "buffer protocol"),
    (lambda: pp.from_dlpack(np.zeros(2, np.complex64)), pp.DTypeError, "f32"),
    (lambda: pp.from_buffer(b"abc"), pp.DTypeError, "format"),
    (lambda: pp.from_buffer(np.zeros((1,) * 9, np.float32)), pp.ShapeError, "8 dimensions"),
    (lambda: pp.tensor([[1, 2], [3]]), pp.ShapeError, "equal length"),
    (lambda: pp.tensor([1, [2]]), pp.ShapeError, "equal length"),
    (lambda: pp.tensor(["a"]), TypeError, "numbers"),
    (lambda: pp.tensor([2.5], dtype="i65"), pp.DTypeError, "i64"),
    (lambda: memoryview(pp.zeros(2, dtype="bf16")), BufferError, "bf16"),
    (lambda: memoryview(pp.zeros(2, requires_grad=True)), BufferError, "detach"),
    (lambda: np.from_dlpack(pp.zeros(2, requires_grad=True)), pp.AutogradError, "detach"),
    (lambda: pp.from_buffer(np.frombuffer(b"123456789", np.uint8)[1:].view(np.float32)), pp.Error, "multiple of 4"),
])
def test_what_cannot_be_shared_is_named(make, error, text):
    with pytest.raises(error, match=text):
        make()

"""The class Tensor: factories, operators, indexing, views, conversions, the tape."""
import copy
import pickle

import numpy as np
import polyphase as pp
import pytest


def test_factories():
    assert pp.zeros((2, 3)).shape == (2, 3) and pp.zeros(4).shape == (4,)
    assert pp.full([2], 7, dtype="i64").tolist() == [7, 7]
    assert pp.arange(3).tolist() == [0, 1, 2] and pp.arange(1, 2, 0.5).tolist() == [1, 1.5]
    assert pp.ones((1,), dtype="f16").dtype == "f16" and pp.empty((0, 3)).numel() == 0
    assert pp.tensor([[1, 2], [3, 4]]).dtype == "i64" and pp.tensor([1, 2.5]).dtype == "f32"
    assert pp.tensor([1, 2], dtype="f64").tolist() == [1.0, 2.0] and pp.tensor(3.5).shape == ()
    assert pp.tensor([1.0], requires_grad=True).requires_grad
    assert pp.zeros_like(pp.ones((2,), dtype="f64")).dtype == "f64"


def test_random_numbers_follow_the_seed():
    pp.manual_seed(5)
    first = pp.randn((4,)).tolist()
    pp.manual_seed(5)
    assert pp.randn((4,)).tolist() == first
    generator = pp.Generator(5)
    assert pp.randn((4,), generator=generator).tolist() == first
    state = generator.state
    a = pp.uniform((3,), -1, 1, generator=generator).tolist()
    generator.state = state
    with pp.GeneratorGuard(generator):
        assert pp.uniform((3,), -1, 1).tolist() == a


def test_operators_are_numpys():
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4))
    x, y = pp.tensor(a), pp.tensor(b)
    for ours, theirs in [(x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (x + 2, a + 2), (2 + x, 2 + a),
                         (3 - x, 3 - a), (x - 3, a - 3), (2 * x, 2 * a), (x / 2, a / 2), (1 / x, 1 / a), (-x, -a), (x**2, a**2)]:
        assert np.allclose(ours.numpy(), theirs, rtol=1e-14, atol=0)


def test_in_place_operators_keep_the_object():
    x = pp.tensor([1.0, 2.0])
    same, view = x, x[1:]
    x += 1
    x *= pp.tensor([2.0, 3.0])
    x -= 1
    x /= 2
    assert x is same and x.tolist() == [1.5, 4.0] and view.tolist() == [4.0]


@pytest.mark.parametrize("index", [0, -1, slice(None), slice(1, None), slice(None, None, 2), (0, 1), (slice(None), 2), (..., 1), (None, 0),
                                   (0, ..., None), (slice(1, 1),), (slice(-2, None), slice(0, 3, 2)), (...,), ()])
def test_indexing_is_numpys(index):
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(pp.tensor(a)[index].numpy(), a[index])


def test_writing_through_an_index():
    x = pp.zeros((2, 3))
    x[0, 1] = 5
    x[:, 2] = pp.tensor([7.0, 8.0])
    assert x.tolist() == [[0, 5, 7], [0, 0, 8]]


@pytest.mark.parametrize("index, error, text", [(2, IndexError, r"\[-2, 2\)"), ((0, 0, 0), IndexError, "at most 2"), ("a", TypeError, "ints, slices"),
                                                (slice(None, None, -1), ValueError, "step"), (1.5, TypeError, "ints, slices")])
def test_a_bad_index_is_named(index, error, text):
    with pytest.raises(error, match=text):
        pp.zeros((2, 3))[index]


def test_a_tensor_is_a_sequence():
    x = pp.tensor([[1, 2], [3, 4]])
    assert len(x) == 2 and [row.tolist() for row in x] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError):
        len(pp.tensor(1))


def test_one_number():
    assert pp.tensor(2.5).item() == 2.5 and type(pp.tensor(2).item()) is int and float(pp.tensor([2.0])) == 2.0
    assert pp.tensor(2**53 + 1).item() == 2**53 + 1
    assert not pp.tensor(0.0)
    with pytest.raises(pp.ShapeError, match="item"):
        pp.zeros((2,)).item()


def test_views_and_conversions():
    x = pp.arange(24).reshape((2, 3, 4))
    assert x.transpose(0, 2).shape == (4, 3, 2) and x.permute([2, 0, 1]).shape == (4, 2, 3) and x.flatten(1).shape == (2, 12)
    assert x.unsqueeze(0).squeeze(0).shape == x.shape and x.unfold(3, 1).shape == (2, 3, 2, 3)
    assert x.strides == (12, 4, 1) and x.ndim == 3 and x.size(-1) == 4
    assert not x.transpose(0, 1).is_contiguous() and x.transpose(0, 1).contiguous().is_contiguous()
    assert x.to("f16").dtype == "f16" and x.to("cpu").device == "cpu" and x.device == "cpu"
    assert pp.tensor([1.0]).expand((3,)).tolist() == [1, 1, 1]
    with pytest.raises(pp.ShapeError, match="reshape"):
        x.reshape((5, 5))
    with pytest.raises(pp.DeviceError, match="f99"):
        x.to("f99")


def test_the_tape():
    x = pp.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = pp.sum(x * x)
    y.backward()
    assert x.grad.tolist() == [2, 4, 6] and x.is_leaf and not (x * 2).is_leaf
    with pp.no_grad():
        assert not (x * 2).requires_grad and not pp.grad_enabled()
    assert pp.grad_enabled()
    x.grad = None
    assert x.grad is None
    with pytest.raises(pp.AutogradError):
        y.backward()
    with pytest.raises(pp.AutogradError):
        x += 1
    with pytest.raises(pp.DTypeError):
        pp.tensor([1]).requires_grad = True


def test_gradcheck():
    x = pp.randn((3,), dtype="f64", requires_grad=True)
    assert pp.gradcheck(lambda inputs: pp.exp(inputs[0]) * pp.sin(inputs[0]), [x]) == ""
    assert "input 0" in pp.gradcheck(lambda inputs: inputs[0].detach() * inputs[0], [x])


def test_copies():
    x = pp.tensor([[1.0, 2.0], [3.0, 4.0]], dtype="bf16", requires_grad=True)
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.tolist() == x.tolist() and twin.dtype == "bf16" and twin.requires_grad
        with pp.no_grad():
            twin.fill_(0)
        assert x.tolist() == [[1, 2], [3, 4]]


def test_printing():
    assert repr(pp.tensor([1.0, 2.5])) == "[1.  2.5]"


def test_context_managers_restore():
    with pp.PrecisionGuard("tf32"), pp.AlgorithmGuard("reference"), pp.AutotuneGuard(False), pp.DeviceGuard("cpu"):
        assert pp.default_device() == "cpu"
    guard = pp.no_grad()
    with guard, guard:
        assert not pp.grad_enabled()
    assert pp.grad_enabled()
    with pytest.raises(pp.DTypeError, match="f32"):
        with pp.AutocastGuard("f32"):
            pass
    with pp.AutocastGuard("bf16"):
        assert pp.matmul(pp.ones((2, 2)), pp.ones((2, 2))).dtype == "bf16"
        with pp.AutocastGuard(None):
            assert pp.matmul(pp.ones((2, 2)), pp.ones((2, 2))).dtype == "f32"


def test_names_that_do_not_exist_are_answered_with_those_that_do():
    with pytest.raises(pp.DTypeError, match="f32, f64, f16, bf16 or i64, got 'float'"):
        pp.zeros((1,), dtype="float")
    with pytest.raises(pp.Error, match="ieee"):
        with pp.PrecisionGuard("fp64"):
            pass
    with pytest.raises(pp.Error, match="zeros, reflect or replicate"):
        pp.pad1d(pp.zeros((1, 4)), 1, "wrap")
    with pytest.raises(pp.DeviceError, match="tpu"):
        pp.zeros((1,), device="tpu")

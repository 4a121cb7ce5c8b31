#include "tensor/dlpack.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <limits>
#include <memory>

#include "device/backend.hpp"

namespace pp = polyphase;
namespace dl = polyphase::dlpack;
using pp::DType;
using pp::Shape;
using pp::Tensor;

namespace {

// A tensor of another library: (2, 3) f32 with 0..5, and a count of deleter calls.
struct Foreign {
  alignas(64) std::array<float, 8> values = {0, 1, 2, 3, 4, 5, 6, 7};
  std::array<std::int64_t, 9> shape = {2, 3};
  std::array<std::int64_t, 9> strides = {3, 1};
  int deleted = 0;
  dl::DLManagedTensorVersioned managed{};

  Foreign() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](dl::DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    managed.dl_tensor = {values.data(), {dl::kDLCPU, 0}, 2, {dl::kDLFloat, 32, 1}, shape.data(), strides.data(), 0};
  }
};

}  // namespace

TEST_CASE("a round trip shares the elements, in every dtype") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    CAPTURE(pp::name_of(dtype));
    Tensor tensor = Tensor::arange(0, 6, 1, {.dtype = dtype}).reshape({2, 3});
    Tensor back = pp::from_dlpack(pp::to_dlpack(tensor));
    CHECK(back.dtype() == dtype);
    CHECK(back.shape() == Shape{2, 3});
    CHECK(back.raw() == tensor.raw());
    back.fill_(4);
    CHECK(tensor.select(0, 1).select(0, 2).item() == 4);
  }
}

TEST_CASE("views go out with their strides") {
  const Tensor tensor = Tensor::arange(24).reshape({2, 3, 4});
  for (const Tensor& view : {tensor.transpose(0, 2), tensor.slice(2, 1, 4, 2), tensor.select(1, 2), tensor.narrow(0, 1, 1),
                             tensor.select(0, 0).unsqueeze(0).expand({5, 3, 4})}) {
    const Tensor back = pp::from_dlpack(pp::to_dlpack(view));
    CHECK(back.shape() == view.shape());
    CHECK(back.raw() == view.raw());
    CHECK(back.to_vector<float>() == view.to_vector<float>());
  }
}

TEST_CASE("rank 0 and no elements") {
  CHECK(pp::from_dlpack(pp::to_dlpack(Tensor::full({}, 3))).item() == 3);
  dl::DLManagedTensorVersioned* empty = pp::to_dlpack(Tensor::zeros({2, 0}));
  CHECK(empty->dl_tensor.data == nullptr);
  CHECK(pp::from_dlpack(empty).shape() == Shape{2, 0});
}

TEST_CASE("an export keeps the storage alive until its deleter is called") {
  pp::Allocator& allocator = pp::backend_of(pp::Device::cpu()).allocator();
  const std::uint64_t before = allocator.stats().live_blocks;
  dl::DLManagedTensorVersioned* managed = nullptr;
  {
    const Tensor tensor = Tensor::full({100}, 7);
    managed = pp::to_dlpack(tensor);
    CHECK(tensor.storage().companion([] { return std::make_unique<pp::StorageCompanion>(); }) == nullptr);  // it is shared
  }
  CHECK(allocator.stats().live_blocks == before + 1);
  CHECK(static_cast<float*>(managed->dl_tensor.data)[99] == 7);
  CHECK(managed->version.major == 1);
  CHECK(managed->flags == 0);
  CHECK(managed->dl_tensor.ndim == 1);
  CHECK(managed->dl_tensor.strides[0] == 1);
  managed->deleter(managed);
  CHECK(allocator.stats().live_blocks == before);
}

TEST_CASE("what the tape follows does not go out") {
  Tensor tensor = Tensor::zeros({2});
  tensor.set_requires_grad(true);
  CHECK_THROWS_WITH_AS((void)pp::to_dlpack(tensor),
                       "to_dlpack: the tensor requires grad, which the other side cannot follow; use detach()",
                       pp::AutogradError);
  CHECK(pp::from_dlpack(pp::to_dlpack(tensor.detach())).numel() == 2);
}

TEST_CASE("an import is released once, with the last handle") {
  Foreign foreign;
  {
    Tensor tensor = pp::from_dlpack(&foreign.managed);
    CHECK(tensor.data<float>() == foreign.values.data());
    const Tensor view = tensor.select(0, 1);
    tensor = Tensor();
    CHECK(foreign.deleted == 0);
    CHECK(view.to_vector<float>() == std::vector<float>{3, 4, 5});
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("the forms an import may have") {
  Foreign foreign;
  dl::DLTensor& tensor = foreign.managed.dl_tensor;
  SUBCASE("no strides: row-major") {
    tensor.strides = nullptr;
    CHECK(pp::from_dlpack(&foreign.managed).strides() == Shape{3, 1});
  }
  SUBCASE("byte_offset") {
    tensor.byte_offset = 8;
    CHECK(pp::from_dlpack(&foreign.managed).to_vector<float>() == std::vector<float>{2, 3, 4, 5, 6, 7});
  }
  SUBCASE("no deleter") {
    foreign.managed.deleter = nullptr;
    CHECK(pp::from_dlpack(&foreign.managed).numel() == 6);
    ++foreign.deleted;
  }
  SUBCASE("strides of dimensions of size 1 mean nothing") {
    foreign.shape = {1, 3};
    foreign.strides = {-77, 1};
    CHECK(pp::from_dlpack(&foreign.managed).to_vector<float>() == std::vector<float>{0, 1, 2});
  }
  SUBCASE("a later minor version") {
    foreign.managed.version.minor = 9;
    CHECK(pp::from_dlpack(&foreign.managed).numel() == 6);
  }
  SUBCASE("read-only: a copy, and the import is released immediately") {
    foreign.managed.flags = dl::kReadOnly;
    Tensor copy = pp::from_dlpack(&foreign.managed);
    CHECK(foreign.deleted == 1);
    copy.fill_(9);
    CHECK(foreign.values[0] == 0);
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("malformed imports are named and released") {
  Foreign foreign;
  dl::DLTensor& tensor = foreign.managed.dl_tensor;
  const auto refuses = [&](const char* text) {
    CHECK_THROWS_WITH_AS((void)pp::from_dlpack(&foreign.managed), text, pp::Error);
    CHECK(foreign.deleted == 1);
  };
  SUBCASE("version") {
    foreign.managed.version = {2, 3};
    refuses("from_dlpack: expected DLPack version 1.x, got 2.3");
  }
  SUBCASE("dtype") {
    tensor.dtype = {dl::kDLUInt, 8, 1};
    refuses("from_dlpack: expected f32, f64, f16, bf16 or i64 of one lane, got type code 1 of 8 bits and 1 lanes");
  }
  SUBCASE("lanes") {
    tensor.dtype.lanes = 4;
    refuses("from_dlpack: expected f32, f64, f16, bf16 or i64 of one lane, got type code 2 of 32 bits and 4 lanes");
  }
  SUBCASE("device type") {
    std::memset(&tensor.device.device_type, 0, sizeof tensor.device.device_type);
    refuses("from_dlpack: expected device type 1 (cpu) or 2 (cuda), got type 0, index 0");
  }
  SUBCASE("rank") {
    tensor.ndim = 9;
    refuses("from_dlpack: expected a rank of 0 to 8, got 9");
  }
  SUBCASE("negative rank") {
    tensor.ndim = -1;
    refuses("from_dlpack: expected a rank of 0 to 8, got -1");
  }
  SUBCASE("no shape") {
    tensor.shape = nullptr;
    refuses("from_dlpack: expected a shape of rank 2, got a null pointer");
  }
  SUBCASE("negative size") {
    foreign.shape[1] = -3;
    refuses("shape: expected sizes of at least 0, got (2, -3)");
  }
  SUBCASE("negative stride") {
    foreign.strides[0] = -3;
    refuses("from_dlpack: expected strides of at least 0, got -3 in dimension 0");
  }
  SUBCASE("sizes that overflow") {
    foreign.strides[0] = std::numeric_limits<std::int64_t>::max();
    refuses("from_dlpack: shape (2, 3) with strides (9223372036854775807, 1) reaches past 64 bits");
  }
  SUBCASE("no data") {
    tensor.data = nullptr;
    refuses("from_dlpack: expected 24 bytes of data, got a null pointer");
  }
  SUBCASE("misaligned data") {
    tensor.byte_offset = 2;
    refuses("from_dlpack: expected f32 data aligned to 4 bytes, got it 2 bytes past");
  }
}

TEST_CASE("a null pointer") {
  CHECK_THROWS_WITH_AS((void)pp::from_dlpack(nullptr), "from_dlpack: expected a tensor, got a null pointer", pp::Error);
}

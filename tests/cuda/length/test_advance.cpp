#include "cuda/length/advance.hpp"

#include <doctest/doctest.h>

#include "ops/elementwise.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("held positions and new ones are joined, and the last are held, as on the host") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  struct Sizes {
    std::int64_t A, B, kept, added, C;
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64})
    for (const Sizes& s : {Sizes{2, 512, 6, 1, 1},
                           {1, 3, 2, 40, 1},
                           {1, 8, 249, 2, 64},
                           {2, 2, 5, 5, 7},
                           {1, 1, 1, 9000, 1},
                           {1, 2, 1000, 30, 64},
                           {1, 1, 3, 0, 2}})
      for (const bool is_turned : {true, false}) {
        CAPTURE(s.kept);
        CAPTURE(s.added);
        const Shape shape = is_turned ? Shape{s.A, s.added, s.B, s.C} : Shape{s.A, s.B, s.added, s.C};
        const Tensor values = (random_f64(shape) * 100.0).to(dtype), x = is_turned ? values.transpose(1, 2) : values;
        const Tensor kept = (random_f64({s.A, s.B, s.kept, s.C}, 2) * 100.0).to(dtype), device_kept = mirrored(kept);
        const Tensor all = poisoned({s.A, s.B, s.kept + s.added, s.C}, dtype), device_all = mirrored(all);
        const auto before = kept.to(DType::f64).to_vector<double>();
        host().advance(all, kept, x);
        gpu().advance(device_all, device_kept, mirrored(x));
        CHECK(different(all, device_all) == 0);
        CHECK(different(kept, device_kept) == 0);
        CHECK(max_difference(all.narrow(2, s.added, s.kept), kept) == 0);
        CHECK(max_difference(all.narrow(2, 0, s.kept), Tensor::from_vector(before, kept.shape()).to(dtype)) == 0);
        CHECK(max_difference(all.narrow(2, s.kept, s.added), x) == 0);
      }
}

TEST_CASE("a row that no block holds is left to copies") {
  const auto all = [](std::int64_t positions) { return Tensor::empty({1, 1, positions, 64}, {.device = Device::cpu()}); };
  CHECK(cuda::advance_fits(all(512)));
  CHECK_FALSE(cuda::advance_fits(all(513)));
}

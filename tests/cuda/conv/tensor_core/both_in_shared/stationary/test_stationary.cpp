#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

#include <doctest/doctest.h>

#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

TEST_CASE("resident steps fit shared memory, list every product and leave no position out") {
  int fitting = 0, whole = 0;
  for (const ConvProblem& p : dense_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::ResidentShape& shape :
           {tensor_core::ResidentShape{128, 2, 4, true, true}, tensor_core::ResidentShape{256, 1, 4, true, false},
            tensor_core::ResidentShape{256, 1, 2, true, true}, tensor_core::ResidentShape{128, 1, 2, false, false}}) {
        const tensor_core::ResidentSteps steps = tensor_core::make_resident_steps(form, shape, 132, kSharedOfHopper);
        if (steps.count == 0) continue;
        ++fitting;
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK((steps.stages >= 2 && steps.raw_stages >= 2));
        CHECK(steps.rows * steps.row_steps >= form.rows);
        CHECK(steps.planes * steps.plane_steps >= form.planes);
        CHECK(steps.taps == form.taps);
        CHECK(steps.product_count == steps.taps * steps.planes * steps.rows / 16);
        for (int i = 0; i < steps.product_count; ++i) {
          CHECK((steps.products[i].source + shape.positions) * 16 <= static_cast<unsigned>(steps.source_bytes));
          CHECK(steps.products[i].weights * 16 < static_cast<unsigned>(steps.weight_bytes));
        }
        // Every row's tiles, from their first sector on, follow each other from before its start to behind its end.
        const std::int64_t first = form.out_stride * steps.position_begin + form.out_origin;
        const std::int64_t behind = first + form.out_stride * steps.position_tiles * steps.position_step;
        CHECK(steps.position_step * form.out_stride % steps.aligned == 0);
        whole += steps.has_whole_sectors() ? 1 : 0;
        if (steps.has_whole_sectors()) {
          CHECK((first <= 0 && first % steps.aligned == 0 && form.out_length % steps.aligned == 0));
        } else if (steps.aligned > 1) {
          CHECK(first + steps.aligned - 1 <= 0);
          CHECK(steps.aligned - 1 + form.out_stride * steps.position_step <= form.out_stride * steps.positions);
        }
        CHECK(steps.position_begin <= form.position_begin);
        CHECK(steps.position_begin + steps.position_tiles * steps.position_step >= form.position_begin + form.position_count);
        CHECK(behind >= form.out_length - form.out_stride * form.out_class_step * form.classes);
        CHECK(steps.grid % steps.weight_tiles == 0);  // a block keeps its columns
      }
    }
  }
  CHECK((is_reduced() ? fitting > 0 : 0 < whole && whole < fitting));
}

#pragma once
// What the forms of tensor_core_forms.hpp took in bench/conv_transpose1d --forms: NVIDIA H200, 2026-11-22; A, B, C and
// hifigan_up3 at ccee40f (docs/benchmarks/h200.json; A dgrad without --forms), the others in a run before.

namespace polyphase::testing {

/// A case a line, by its name in bench/shapes.hpp: forms and their microseconds, the fastest first; the middle of five bursts
/// of 12, weights packed. `wide1/2` is the wide form's shape 1 in 2 slices.
inline constexpr const char* kMeasuredForms = R"(
B forward fp32 narrow 361.5 resident 436.6
B forward bf16 narrow 189.2 turned 238.9
B forward tf32 narrow 362.4 resident 390.9
C forward fp32 boxes 460 narrow 610.5 resident 640.3
C forward bf16 turned 255.9 resident 313.9
C forward tf32 boxes 419.8 narrow 459 resident 489.9
hifigan_up0 forward fp32 wide0/1 95.2 wide1/1 110.9
hifigan_up0 forward bf16 units 27.9
hifigan_up0 forward tf32 wide2/1 53.8 wide1/1 60.1 wide0/1 60.7
hifigan_up1 forward fp32 wide0/1 202.2 wide1/1 203
hifigan_up1 forward bf16 units 60.2 wide0/1 78.6
hifigan_up1 forward tf32 wide0/1 113.7 wide1/1 116.4 wide2/1 118.7
hifigan_up2 forward fp32 resident 201.9 wide0/1 220.3 wide1/1 221.2
hifigan_up2 forward bf16 phases 52.5
hifigan_up2 forward tf32 phases 106.7 narrow 126.6
hifigan_up3 forward fp32 narrow 98.1 resident 125.5
hifigan_up3 forward bf16 phases 48 narrow 61.7 resident 62.4
hifigan_up3 forward tf32 resident 79.2 narrow 82.5 phases 86.7
dac_up0 forward fp32 wide1/2 111.7 wide0/2 117 wide1/1 122.9 wide0/1 123.4 wide0/4 124.1 wide1/4 124.9 wide0/3 126.8
dac_up0 forward bf16 units 35.5 wide0/1 39.7 wide1/1 41.6
dac_up0 forward tf32 wide0/1 46.1 wide1/1 48 wide2/1 57.8 wide2/2 60.5 wide0/2 60.5
dac_up1 forward fp32 wide0/1 183.9 wide1/1 186.9 wide0/2 224.3 wide1/2 224.5 wide1/3 240.4 wide0/3 240.8
dac_up1 forward bf16 units 54.2 wide0/1 62.2 wide1/1 64
dac_up1 forward tf32 wide0/1 79.8 wide1/1 84.2 wide2/1 93.6
dac_up2 forward fp32 wide0/1 191 wide1/1 191.9
dac_up2 forward bf16 units 50.9
dac_up2 forward tf32 wide0/1 102.5 wide1/1 104.1 wide2/1 111.8
dac_up3 forward fp32 wide1/1 170.4 resident 199.7 wide0/1 203.1
dac_up3 forward bf16 phases 40.2
dac_up3 forward tf32 phases 81.4 resident 101.1
oobleck0 forward fp32 wide0/3 131.4 wide1/3 132.8 wide0/2 138.5 wide1/2 139.9 wide0/6 150.4 wide0/4 151.1 wide1/6 151.2
oobleck0 forward bf16 wide0/1 48.8 wide0/3 60.7 wide2/2 62.1 wide2/3 63.4 wide2/1 63.5
oobleck0 forward tf32 wide0/1 53.7 wide0/3 67.9 wide2/1 70.6 wide2/2 70.6 wide2/3 71.3
oobleck4 forward fp32 wide0/1 300.5 wide1/1 305.4 resident 306.4
oobleck4 forward bf16 phases 70.2
oobleck4 forward tf32 phases 125.5
demucs forward fp32 wide0/1 227 wide1/1 228.5
demucs forward bf16 units 60.6
demucs forward tf32 wide0/1 120 wide1/1 121.4 wide2/1 130.9
wavegan forward fp32 units 454.2 wide0/1 576.6 wide1/1 580.4
wavegan forward bf16 units 143.8 wide0/1 193.7
wavegan forward tf32 wide0/1 230 wide1/1 230.1 wide2/1 256.6
grouped forward fp32 resident 263.1 wide0/1 342.2 wide1/1 347.8
grouped forward bf16 wide1/1 144.5 wide0/1 148.7 wide2/1 192.4
grouped forward tf32 narrow 149.8 resident 160.3
A forward fp32 rows 1864
A forward bf16 rows 716 resident 1038.5
A forward tf32 rows 1176.9 resident 1584.1
B dgrad fp32 narrow 345.8 resident 408.6
B dgrad bf16 narrow 202.8
B dgrad tf32 narrow 344.4 resident 376.1
C dgrad fp32 boxes 528 narrow 671.4
C dgrad bf16 turned 272.6
C dgrad tf32 boxes 415.7 narrow 478.1 resident 489
hifigan_up0 dgrad fp32 wide0/1 110.7 wide0/2 121.6 wide0/3 125.2 wide0/4 129.8
hifigan_up0 dgrad bf16 wide2/1 45.7 wide2/2 55.7 wide2/3 58.6
hifigan_up0 dgrad tf32 wide2/1 55.8 wide2/2 66.4 wide2/3 69.5 wide2/4 74 wide0/1 74.4
hifigan_up1 dgrad fp32 wide0/1 266.8 wide1/1 269.2 wide0/2 300.7 wide1/2 304.2 wide0/4 345.1 wide1/4 348.6
hifigan_up1 dgrad bf16 wide0/1 101.8 wide1/1 106.5 wide2/1 109.8
hifigan_up1 dgrad tf32 wide0/1 128.2 wide1/1 130.6 wide2/1 133.4 wide2/2 168.9
hifigan_up2 dgrad fp32 resident 205.3 wide0/1 233 wide1/1 234 streamed 272.2
hifigan_up2 dgrad bf16 narrow 79.5 resident 94.5 wide0/1 105.5
hifigan_up2 dgrad tf32 narrow 101.5 resident 119.6
hifigan_up3 dgrad fp32 narrow 89.6 resident 116.4
hifigan_up3 dgrad bf16 narrow 49.4
hifigan_up3 dgrad tf32 resident 78.8 narrow 81.9
dac_up0 dgrad fp32 wide0/8 121.4 wide1/8 122.2 wide0/2 130.4 wide1/2 131.2 wide0/4 140 wide1/4 140.8 wide0/12 141.9
dac_up0 dgrad bf16 wide2/2 50.2 wide2/4 55 wide2/8 55.4 wide0/4 55.6 wide1/4 58.2 wide2/6 59.6 wide0/3 62.2 wide1/3 64.6
dac_up0 dgrad tf32 wide2/2 58.4 wide2/4 63 wide2/8 63.3 wide0/4 65.3 wide2/6 67.8 wide1/4 68 wide0/3 71.8 wide2/3 73.3
dac_up1 dgrad fp32 wide0/4 202.5 wide0/3 205.1 wide1/3 208.5 wide0/2 217.4 wide1/2 220.9 wide0/6 224.2 wide1/6 226.4
dac_up1 dgrad bf16 wide0/1 79.6 wide1/1 81.7 wide2/3 83.6 wide2/2 84.1 wide0/3 85.2 wide1/3 86.2 wide2/4 87.1 wide2/1 89.4
dac_up1 dgrad tf32 wide0/1 91.9 wide1/1 93.9 wide2/3 96.9 wide2/2 98.1 wide0/3 100.8 wide2/4 100.9 wide1/3 101 wide2/1 103.2
dac_up2 dgrad fp32 wide0/1 213.1 wide1/1 221.1 wide0/2 261.2 wide1/2 263.2 wide0/3 281.8 wide1/3 284.3
dac_up2 dgrad bf16 wide2/1 85.7 wide0/1 87.8 wide1/1 90.1
dac_up2 dgrad tf32 wide2/1 107 wide0/1 113.4 wide1/1 114.9
dac_up3 dgrad fp32 wide1/1 163 wide0/1 201.4
dac_up3 dgrad bf16 wide1/1 72.5 wide0/1 82.5 resident 84.1 wide2/1 95.9
dac_up3 dgrad tf32 wide1/1 101.5 resident 108 wide0/1 119.4 wide2/1 123.1
oobleck0 dgrad fp32 wide1/4 123.9 wide0/4 124.5 wide0/8 130.5 wide1/8 130.6 wide0/3 148.8 wide1/3 149.3
oobleck0 dgrad bf16 wide2/4 52.2 wide2/3 58.5 wide2/8 60 wide0/8 63.5 wide2/6 68.8 wide0/6 69.7
oobleck0 dgrad tf32 wide2/4 59.4 wide2/3 65.6 wide2/8 67.5 wide0/8 74 wide2/6 76.4 wide2/2 78.8
oobleck4 dgrad fp32 wide0/1 314.9 wide1/1 317.8
oobleck4 dgrad bf16 resident 127 wide0/1 136.9 wide1/1 143.2 wide2/1 149.7
oobleck4 dgrad tf32 wide0/1 185.5 wide1/1 191 wide2/1 193.3
demucs dgrad fp32 wide0/1 260.2 wide1/1 262.5 wide0/2 311 wide1/2 313 wide0/3 335.5 wide1/3 336.5
demucs dgrad bf16 wide0/1 99.1 wide1/1 101.8 wide2/1 108.5
demucs dgrad tf32 wide0/1 127.1 wide1/1 136.1 wide2/1 141.1
wavegan dgrad fp32 wide0/1 618 wide1/1 631.7 wide0/2 693.5 wide1/2 703.4 wide0/4 767.3 wide1/4 773.3
wavegan dgrad bf16 wide0/1 215.2 wide1/1 215.3 wide2/1 244.3
wavegan dgrad tf32 wide1/1 239.9 wide0/1 239.9 wide2/1 269.1 wide1/2 320.2 wide0/2 321.5
grouped dgrad fp32 wide1/1 393.1 streamed 475
grouped dgrad bf16 wide1/1 174.8 wide0/1 214.1
grouped dgrad tf32 resident 197.5 wide1/1 231.6
A dgrad fp32 rows 1863.1
A dgrad bf16 rows 723.2
A dgrad tf32 rows 1106.3
)";

}  // namespace polyphase::testing

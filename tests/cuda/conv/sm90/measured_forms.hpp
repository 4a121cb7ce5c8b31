#pragma once
// What the forms of tensor_core_forms.hpp took in one run of bench/conv_transpose1d --forms: NVIDIA H200, 2026-11-22.

namespace polyphase::testing {

/// A case a line, by its name in bench/shapes.hpp: forms and their microseconds, the fastest first; the middle of five bursts
/// of 12, weights packed. `wide1/2` is the wide form's shape 1 in 2 slices.
inline constexpr const char* kMeasuredForms = R"(
dac_up0 forward fp32 wide0/2 103.8 wide1/2 104.4 wide0/1 113.1 wide1/1 113.4 wide0/4 117 wide1/4 117.7 wide0/3 118.5
dac_up0 dgrad fp32 wide0/8 111.9 wide1/8 112.3 wide0/2 118.5 wide1/2 119.1 wide0/4 126.9 wide1/4 127.1 wide0/12 130
dac_up0 forward tf32 wide0/1 45.6 wide1/1 47.9 wide2/1 55 wide2/2 58.4 wide0/2 60.6 wide1/2 64.2 wide2/3 69.4 wide2/4 73.1
dac_up0 dgrad tf32 wide2/2 56.6 wide2/4 60.9 wide2/8 61.3 wide0/4 64.2 wide2/6 65.5 wide1/4 66.9 wide2/3 70.5 wide0/3 70.7
dac_up0 forward bf16 units 35 wide0/1 39.8 wide1/1 41.6 wide2/1 50.3 wide2/2 52.8 wide0/2 55.5 wide1/2 60.2 wide2/3 63.5
dac_up0 dgrad bf16 wide2/2 49.7 wide2/4 53.8 wide2/8 54.2 wide0/4 54.7 wide1/4 57.5 wide2/6 58.4 wide0/3 61.3 wide2/3 63.6
hifigan_up2 forward fp32 wide1/1 211.9 wide0/1 213 resident 226.5 wide1/2 342.5 wide0/2 344.8 streamed 389.7
hifigan_up2 dgrad fp32 wide1/1 218.9 wide0/1 221 resident 224.7 streamed 281.9 wide1/2 349.3 wide0/2 354.3
hifigan_up2 forward tf32 phases 95.4 narrow 127.4 wide0/1 144.1 wide1/1 150.1 wide2/1 153.8 resident 187.7
hifigan_up2 dgrad tf32 narrow 97.5 resident 141 wide0/1 150 wide1/1 150 wide2/1 156.9
hifigan_up2 forward bf16 phases 52.7 resident 84.8 narrow 98.9 wide0/1 99.3
hifigan_up2 dgrad bf16 narrow 79.4 resident 96 wide0/1 105 wide1/1 108.4 wide2/1 121.8
hifigan_up3 forward fp32 narrow 96.4 resident 148 wide1/1 181.8
hifigan_up3 dgrad fp32 narrow 85.5 resident 137.6
hifigan_up3 forward tf32 narrow 82.9 phases 95.5 resident 106.6 wide1/1 135.2
hifigan_up3 dgrad tf32 narrow 81.4 resident 104.1 wide1/1 139.6
hifigan_up3 forward bf16 phases 48 narrow 59.4 resident 62.1 wide1/1 92.2
hifigan_up3 dgrad bf16 narrow 48.8 resident 76.9 wide1/1 97.5
dac_up1 forward fp32 wide0/1 174.6 wide1/1 175.3 wide1/2 205.7 wide0/2 205.7 wide1/3 221.7 wide0/3 221.9 wide1/4 240.2
dac_up1 dgrad fp32 wide0/4 183.7 wide0/3 184.9 wide1/3 186.5 wide0/2 195.8 wide1/2 197 wide0/6 201.1 wide1/6 202.9
dac_up1 forward tf32 wide0/1 77.3 wide1/1 77.8 wide2/1 87.3 wide2/2 132.1 wide1/2 133.4 wide0/2 135.6 wide2/3 151.7
dac_up1 dgrad tf32 wide0/1 89.3 wide1/1 91.6 wide2/3 93.9 wide2/2 94.4 wide2/4 97.8 wide0/3 98.4 wide1/3 99.3 wide2/1 99.9
dac_up1 forward bf16 units 54 wide0/1 62.6 wide1/1 64.3 wide2/1 81.5
dac_up1 dgrad bf16 wide0/1 78.6 wide1/1 80.7 wide2/3 81.6 wide2/2 82.1 wide0/3 83.7 wide1/3 85.3 wide2/4 85.5 wide2/1 87.7
hifigan_up0 forward fp32 wide0/1 90.4 wide1/1 106.2 wide0/2 123.2 wide1/2 134.9 wide0/3 140.5 wide1/3 148.8 wide0/4 158.3
hifigan_up0 dgrad fp32 wide0/1 102.6 wide0/2 112.6 wide0/3 116.4 wide0/4 120.6 wide1/4 138.9 wide0/8 140.3 wide1/3 141
hifigan_up0 forward tf32 wide2/1 51.8 wide0/1 58.9 wide1/1 59.2 wide2/2 89.2
hifigan_up0 dgrad tf32 wide2/1 53.9 wide2/2 63.9 wide2/3 67.1 wide2/4 71.4 wide0/1 71.8 wide1/1 74 wide0/3 81.3 wide1/3 84.4
hifigan_up0 forward bf16 units 27.7 wide0/1 46.3 wide2/1 47.1 wide1/1 47.5
hifigan_up0 dgrad bf16 wide2/1 44.8 wide2/2 54.6 wide2/3 57.4 wide0/1 62.4 wide2/4 62.6 wide1/1 63.2 wide0/3 70.3
hifigan_up1 forward fp32 wide0/1 197.4 wide1/1 197.7 wide1/2 332.2 wide0/2 335 wide1/3 389.8
hifigan_up1 dgrad fp32 wide0/1 247.9 wide1/1 249 wide0/2 282.3 wide1/2 284.6 wide0/4 327.3 wide1/4 329
hifigan_up1 forward tf32 wide0/1 110.3 wide1/1 113.9 wide2/1 114.2
hifigan_up1 dgrad tf32 wide0/1 123.9 wide1/1 127.1 wide2/1 128.8 wide2/2 164.2 wide0/2 170.1 wide1/2 173.5 wide2/4 199.9
hifigan_up1 forward bf16 units 58.7 wide0/1 78.6 wide1/1 84.7 wide2/1 104.2
hifigan_up1 dgrad bf16 wide0/1 100 wide1/1 105 wide2/1 108.1 wide2/2 137.9 wide0/2 141 wide1/2 147.1 wide2/4 173.3
oobleck4 forward fp32 wide1/1 289.1 wide0/1 290.8 resident 330
oobleck4 dgrad fp32 wide0/1 297.7 wide1/1 299.5 streamed 463.3
oobleck4 forward tf32 phases 139.5 narrow 181.9 wide0/1 194.6 wide2/1 204.4 wide1/1 208.5 resident 216.9
oobleck4 dgrad tf32 wide0/1 178.4 wide1/1 184 wide2/1 191.7 resident 299.4
oobleck4 forward bf16 phases 69.8 wide0/1 122 resident 122.4 wide1/1 138.3
oobleck4 dgrad bf16 resident 126.3 wide0/1 135.5 wide1/1 142.1 wide2/1 148.6
dac_up3 forward fp32 wide1/1 159.8 wide0/1 191.9 resident 215.1 wide1/2 232.5
dac_up3 dgrad fp32 wide1/1 151.8 wide0/1 181.1 wide1/2 229.6
dac_up3 forward tf32 phases 83.5 wide1/1 117.7 resident 129.1 wide0/1 129.8 wide2/1 135.4
dac_up3 dgrad tf32 wide1/1 97.2 wide0/1 113.5 wide2/1 116.9 resident 126.1
dac_up3 forward bf16 phases 39.9 wide1/1 76.1 resident 76.8
dac_up3 dgrad bf16 wide1/1 71.9 wide0/1 81.1 resident 85.4 wide2/1 93.8
dac_up2 forward fp32 wide0/1 184.8 wide1/1 185.8 wide1/2 259.4 wide0/2 260.7
dac_up2 dgrad fp32 wide0/1 194.1 wide1/1 195.1 wide0/2 237.6 wide1/2 238.5 wide0/3 258.4 wide1/3 258.5
dac_up2 forward tf32 wide0/1 100 wide1/1 102.1 wide2/1 109.3 wide2/2 189.4
dac_up2 dgrad tf32 wide2/1 103.6 wide0/1 108.4 wide1/1 110 wide2/2 146.7 wide0/2 160.1 wide1/2 162.3 wide2/3 170
dac_up2 forward bf16 units 49.8 wide0/1 76.7 wide1/1 79.7 wide2/1 93.8
dac_up2 dgrad bf16 wide2/1 84.2 wide0/1 85.9 wide1/1 88.9 wide2/2 125.7 wide0/2 130.4 wide1/2 134.1 wide2/3 145.6
demucs forward fp32 wide0/1 218.9 wide1/1 219.8 wide1/2 301.8 wide0/2 303.6 wide0/3 372 wide1/3 373.7 wide1/4 416.6
demucs dgrad fp32 wide0/1 236.8 wide1/1 237.7 wide0/2 286.8 wide1/2 287.5 wide0/3 309.5 wide1/3 309.8 wide0/6 405.9
demucs forward tf32 wide0/1 116.5 wide1/1 118.6 wide2/1 126.5 wide2/2 220.5
demucs dgrad tf32 wide0/1 122.7 wide1/1 124.5 wide2/1 126.8 wide2/2 180.1 wide0/2 189.2 wide1/2 194.4 wide2/3 205.5
demucs forward bf16 units 59 wide0/1 88.7 wide1/1 92.6 wide2/1 109.3
demucs dgrad bf16 wide0/1 97.1 wide1/1 100.1 wide2/1 105.7 wide2/2 149.5 wide0/2 154.9 wide1/2 160.5 wide2/3 174
oobleck0 forward fp32 wide1/3 125.1 wide0/3 125.4 wide1/2 130.1 wide0/2 130.6 wide0/4 142.3 wide1/4 142.3 wide1/6 143.2
oobleck0 dgrad fp32 wide1/4 112.8 wide0/4 113.5 wide1/8 120.8 wide0/8 121.2 wide0/3 135.5 wide1/3 135.5 wide1/6 156.5
oobleck0 forward tf32 wide0/1 52.8 wide2/1 66.6 wide2/2 67.3 wide0/3 67.6 wide2/3 68.5 wide0/2 75.2 wide2/4 80.6
oobleck0 dgrad tf32 wide2/4 56.2 wide2/3 62.4 wide2/8 63.6 wide0/8 71.9 wide2/6 72 wide2/2 75.1 wide0/6 78.4 wide0/4 82.8
oobleck0 forward bf16 wide0/1 49 wide0/3 60.7 wide2/2 61.6 wide2/3 62.9 wide2/1 63.2 wide0/2 67 wide0/4 74.2 wide2/4 75
oobleck0 dgrad bf16 wide2/4 50.6 wide2/3 57 wide2/8 58.4 wide0/8 61.5 wide2/6 66.3 wide0/6 67.9 wide2/2 70.1 wide0/4 72.8
grouped forward fp32 resident 295.7 wide0/1 318.3 wide1/1 319.2
grouped dgrad fp32 wide1/1 369.1 streamed 460.3 wide1/2 523.7
grouped forward tf32 narrow 147.7 resident 192.8 wide1/1 205.1 wide0/1 212.7 wide2/1 222.1
grouped dgrad tf32 wide1/1 220 resident 223 wide1/2 419.4
grouped forward bf16 wide1/1 146.3 wide0/1 149.9 wide2/1 192.2
grouped dgrad bf16 wide1/1 172.8 wide0/1 209.9 wide2/1 258.4
wavegan forward fp32 units 499 wide1/1 563.5 wide0/1 565.3 wide1/2 698.7 wide0/2 699.9 wide0/3 761.7 wide1/3 774.8 wide0/4 863.4
wavegan dgrad fp32 wide1/1 588.1 wide0/1 591.4 wide1/2 666.5 wide0/2 670.6 wide1/4 731.1 wide0/4 734.2 streamed 1092.9
wavegan forward tf32 wide1/1 225.8 wide0/1 225.9 wide2/1 250.2 wide2/2 394.9 wide1/2 400.8 wide0/2 406.9
wavegan dgrad tf32 wide1/1 230.2 wide0/1 230.9 wide2/1 253.7 wide1/2 312.9 wide0/2 313.6 wide2/2 316.5 wide1/4 402.8
wavegan forward bf16 units 140.2 wide0/1 192.2 wide1/1 193.6 wide2/1 228.8
wavegan dgrad bf16 wide1/1 208 wide0/1 208.5 wide2/1 234.9 wide1/2 284.6 wide0/2 287.4 wide2/2 294.6 wide1/4 371.7
B forward fp32 narrow 383.7 resident 461
B dgrad fp32 narrow 341 resident 417.1
B forward tf32 narrow 380.7 resident 420
B dgrad tf32 narrow 340.8 resident 371.2 wide1/1 587.1
B forward bf16 narrow 194.8 turned 220.6 resident 264.4
B dgrad bf16 narrow 203.6 resident 297.9 wide1/1 370.9
C forward fp32 boxes 495.2 resident 642.8 narrow 644
C dgrad fp32 boxes 545.7 narrow 623.2 resident 921.1
C forward tf32 boxes 461.8 narrow 485.7 resident 498.7 wide1/1 776
C dgrad tf32 boxes 412.6 narrow 445.1 resident 491.5
C forward bf16 turned 256.5 resident 324.1 narrow 350.6
C dgrad bf16 turned 257 narrow 410.7 resident 428.2
A forward fp32 rows 2248.6 resident 2935.7 wide1/1 4332.5
A dgrad fp32 rows 2043.7 resident 2931.9
A forward tf32 rows 1266.5 resident 1609 wide1/1 2404.5 wide0/1 2441
A dgrad tf32 rows 1222.8 resident 1571.5 wide1/1 2356.9 wide0/1 2386.5
A forward bf16 rows 782.4 resident 1032.6
A dgrad bf16 rows 722.1 resident 1027.7
)";

}  // namespace polyphase::testing

#pragma once
// What the forms of choice/kernels.hpp took in two runs of bench/conv_transpose1d --forms, of its shapes and of its blocks:
// NVIDIA H200, 2026-11-23.

namespace polyphase::testing {

/// A case a line, by its name in bench/shapes.hpp: forms and their microseconds, the fastest first; the middle of five bursts
/// of 12, weights packed. `wide1/2` is the wide form's shape 1 in 2 slices.
inline constexpr const char* kMeasuredForms = R"(
B forward fp32 narrow 365.7 resident 416.2
B forward bf16 narrow 191.6 turned 243.1
B forward tf32 narrow 366.8 resident 396.9
C forward fp32 boxes 448.8 narrow 603.2
C forward bf16 turned 258.8 resident 314.3 narrow 333.4
C forward tf32 boxes 423.3 narrow 462.3 resident 495.2
hifigan_up0 forward fp32 wide0/1 93.7 wide1/1 109.7
hifigan_up0 forward bf16 units 27.9 wide2/1 46.9
hifigan_up0 forward tf32 wide2/1 52.2 wide0/1 59.2 wide1/1 59.4
hifigan_up1 forward fp32 wide0/1 200.7 wide1/1 201.6
hifigan_up1 forward bf16 units 59.1 wide0/1 79.2
hifigan_up1 forward tf32 wide0/1 112.9 wide1/1 116.5 wide2/1 116.8
hifigan_up2 forward fp32 resident 199.8 wide0/1 219.4 wide1/1 220.5
hifigan_up2 forward bf16 phases 51.9 resident 83.3
hifigan_up2 forward tf32 phases 90.9 narrow 130
hifigan_up3 forward fp32 narrow 97.6 resident 121.1
hifigan_up3 forward bf16 phases 47.8 narrow 62.4
hifigan_up3 forward tf32 resident 79.8 narrow 83 phases 87.6
dac_up0 forward fp32 wide0/2 114.5 wide1/2 115.3 wide1/1 120.7 wide0/1 121.4 wide0/4 127.9 wide1/4 128.9 wide0/3 130.9 wide1/3 131.7 wide0/6 141
dac_up0 forward bf16 units 35.3 wide0/1 39.5 wide1/1 42
dac_up0 forward tf32 wide0/1 44.3 wide1/1 47 wide2/1 56
dac_up1 forward fp32 wide0/1 181 wide1/1 185.8 wide0/2 221.3 wide1/2 222.6
dac_up1 forward bf16 units 54.5 wide0/1 63.1 wide1/1 64.6
dac_up1 forward tf32 wide0/1 78.4 wide1/1 78.7 wide2/1 89.3
dac_up2 forward fp32 wide0/1 189.6 wide1/1 190.2
dac_up2 forward bf16 units 50.3 wide0/1 77.1
dac_up2 forward tf32 wide0/1 102.2 wide1/1 104.9 wide2/1 111.1
dac_up3 forward fp32 wide1/1 169.9 resident 189.2
dac_up3 forward bf16 phases 40.3 resident 75.6
dac_up3 forward tf32 phases 65.5 resident 103.3
oobleck0 forward fp32 wide0/3 127.9 wide1/3 129.5 wide0/2 135 wide1/2 136.5 wide0/6 146.3 wide0/4 146.6 wide1/6 147.4 wide1/4 148.1 wide0/1 154
oobleck0 forward bf16 wide0/1 48.6 wide0/3 61.2 wide2/2 62.5
oobleck0 forward tf32 wide0/1 52.1 wide2/2 68.5
oobleck4 forward fp32 wide0/1 300.3 resident 302.6 wide1/1 304.2
oobleck4 forward bf16 phases 69.6 resident 120.3
oobleck4 forward tf32 phases 116.8 narrow 190.1
demucs forward fp32 wide0/1 224.6 wide1/1 225.5
demucs forward bf16 units 59.5 wide0/1 90
demucs forward tf32 wide0/1 118.9 wide1/1 122.2 wide2/1 129.8
wavegan forward fp32 units 451.5 wide0/1 570.8 wide1/1 574.2
wavegan forward bf16 units 141.4 wide0/1 193.7
wavegan forward tf32 wide0/1 229.2 wide1/1 230.5 wide2/1 254.4
grouped forward fp32 resident 263.1 wide0/1 342.2
grouped forward bf16 wide1/1 146.3 wide0/1 150.1
grouped forward tf32 narrow 147.6 resident 161.5
A forward fp32 rows 1870.7 resident 2855.1
A forward bf16 rows 701.5 resident 1027.6
A forward tf32 rows 1180.4 resident 1595.2
B dgrad fp32 narrow 341.2 resident 374.3
B dgrad bf16 narrow 201.9 resident 216.7
B dgrad tf32 narrow 341.4 resident 346
C dgrad fp32 boxes 520.6 narrow 662.8
C dgrad bf16 turned 268.3 resident 337.3
C dgrad tf32 boxes 411.6 narrow 468.9 resident 472.9
hifigan_up0 dgrad fp32 wide0/1 109.3 wide0/2 119.3 wide0/3 122.9 wide0/4 127.5
hifigan_up0 dgrad bf16 wide2/1 45.4 wide2/2 55.7 wide2/3 58.7
hifigan_up0 dgrad tf32 wide2/1 53.8 wide2/2 64.6 wide2/3 67.6
hifigan_up1 dgrad fp32 wide0/1 263.4 wide1/1 265.8 wide0/2 297.2 wide1/2 299.9 wide0/4 337.9 wide1/4 341.3
hifigan_up1 dgrad bf16 wide0/1 101.2 wide1/1 106.2 wide2/1 109.3
hifigan_up1 dgrad tf32 wide0/1 125.6 wide1/1 128.4 wide2/1 130.1
hifigan_up2 dgrad fp32 resident 181.9 wide0/1 230.2 wide1/1 231.3
hifigan_up2 dgrad bf16 resident 77.9 narrow 80.8
hifigan_up2 dgrad tf32 narrow 100.9 resident 115
hifigan_up3 dgrad fp32 narrow 89 resident 89.4
hifigan_up3 dgrad bf16 narrow 49.5 resident 50.5
hifigan_up3 dgrad tf32 narrow 82.1 resident 83.3
dac_up0 dgrad fp32 wide0/8 117.7 wide1/8 118.5 wide0/2 127.9 wide1/2 128.9 wide0/4 136.2 wide1/4 137.2 wide0/12 138.2 wide1/12 138.9 wide0/6 141.4
dac_up0 dgrad bf16 wide2/2 50.1 wide2/4 54.7 wide0/4 55.1 wide2/8 55.2 wide1/4 58 wide2/6 59.2 wide0/3 61.8 wide2/3 64.2 wide1/3 64.7
dac_up0 dgrad tf32 wide2/2 55.9 wide2/4 60.5 wide2/8 60.6 wide0/4 63.5 wide2/6 65.3 wide1/4 66 wide0/3 69.7 wide2/3 70.6
dac_up1 dgrad fp32 wide0/4 198.7 wide0/3 201 wide1/3 204 wide0/2 213.6 wide1/2 216.4 wide0/6 219.7 wide1/6 221.5 wide1/4 229.7 wide0/12 239.7
dac_up1 dgrad bf16 wide0/1 79.1 wide1/1 81.6 wide2/3 83.2 wide2/2 83.7 wide0/3 85.1 wide1/3 86.4 wide2/4 86.6 wide2/1 88.4 wide0/2 97.4
dac_up1 dgrad tf32 wide0/1 89.5 wide1/1 92.7 wide2/3 95.1 wide2/2 95.5 wide1/3 98.9 wide0/3 98.9 wide2/4 99.1 wide2/1 100.6 wide0/2 110
dac_up2 dgrad fp32 wide0/1 209.8 wide1/1 211.2 wide0/2 253.2 wide1/2 254.4
dac_up2 dgrad bf16 wide2/1 85 wide0/1 87.2 wide1/1 89.9
dac_up2 dgrad tf32 wide2/1 104.7 wide0/1 111 wide1/1 114.2
dac_up3 dgrad fp32 wide1/1 160 wide0/1 197.3
dac_up3 dgrad bf16 resident 67.6 wide1/1 72.3 wide0/1 82
dac_up3 dgrad tf32 wide1/1 100.5 resident 102.7 wide0/1 116.8 wide2/1 120.6
oobleck0 dgrad fp32 wide1/4 119.6 wide0/4 119.9 wide1/8 126 wide0/8 126.1 wide0/3 145.4 wide1/3 146.2
oobleck0 dgrad bf16 wide2/4 51.6 wide2/3 57.8 wide2/8 59.2 wide0/8 62
oobleck0 dgrad tf32 wide2/4 57 wide2/3 63.6 wide2/8 65.1 wide0/8 72.2 wide2/6 74
oobleck4 dgrad fp32 wide0/1 311.1 wide1/1 313.5
oobleck4 dgrad bf16 resident 114.9 wide0/1 136.3 wide1/1 143.3 wide2/1 149.2
oobleck4 dgrad tf32 resident 173.6 wide0/1 182.5 wide1/1 189.1 wide2/1 190.1
demucs dgrad fp32 wide0/1 255.8 wide1/1 258.2 wide0/2 305.4 wide1/2 307.5 wide0/3 329.7 wide1/3 330.2
demucs dgrad bf16 wide0/1 98.1 wide1/1 101.8 wide2/1 107.4
demucs dgrad tf32 wide0/1 124.6 wide1/1 127.3 wide2/1 128.8
wavegan dgrad fp32 wide0/1 611.2 wide1/1 622 wide0/2 685 wide1/2 693.1 wide0/4 755.3 wide1/4 760.1
wavegan dgrad bf16 wide1/1 213.4 wide0/1 213.8 wide2/1 241.5
wavegan dgrad tf32 wide0/1 236.6 wide1/1 236.7 wide2/1 262.8
grouped dgrad fp32 wide1/1 386 streamed 471.2
grouped dgrad bf16 wide1/1 174 wide0/1 213.1
grouped dgrad tf32 resident 123.7 wide1/1 229.3
A dgrad fp32 rows 1940.5 resident 2746.7
A dgrad bf16 rows 744.6 resident 932.4
A dgrad tf32 rows 1116.6 resident 1594.8
block256_k1 forward fp32 wide0/1 216.5 wide1/1 228.2 resident 272.8
block256_k1 forward tf32 wide0/1 144.7 wide1/1 145.9 wide2/1 161.2 resident 167.3
block256_k1 forward bf16 resident 92.6 wide0/1 100.4 wide1/1 103.5
block256_k3 forward fp32 wide0/1 369.2 wide1/1 372.2
block256_k3 forward tf32 wide0/1 193.8 wide1/1 195.1 wide2/1 207.5
block256_k3 forward bf16 resident 138.4 wide1/1 138.9 wide0/1 140.5 wide2/1 165.8
block256_k3_d5 forward fp32 wide0/1 374.4 wide1/1 377.8
block256_k3_d5 forward tf32 wide1/1 188.9 wide0/1 190.5 wide2/1 207.7
block256_k3_d5 forward bf16 resident 138.8 wide1/1 141 wide0/1 142.4 wide2/1 169.5
block256_k7 forward fp32 wide0/1 634.5 wide1/1 639.2 wide0/2 772.7 wide1/2 775.6
block256_k7 forward tf32 wide1/1 266.8 wide0/1 268.8 wide2/1 293.9
block256_k7 forward bf16 wide1/1 217.6 wide0/1 218.5 wide2/1 254.4
block256_k7_d5 forward fp32 wide0/1 653.2 wide1/1 761.3 wide0/2 789.1
block256_k7_d5 forward tf32 wide1/1 272.3 wide0/1 273.2 wide2/1 302.9
block256_k7_d5 forward bf16 wide0/1 219.7 wide1/1 220 wide2/1 261.6
block256_k11 forward fp32 wide0/1 896.2 wide1/1 910.1 wide0/2 1037.6 wide1/2 1053.7 wide0/3 1134.9 wide1/3 1154.3
block256_k11 forward tf32 wide1/1 355.1 wide0/1 356 wide2/1 406
block256_k11 forward bf16 wide0/1 300.6 wide1/1 301.3 wide2/1 358.9
block256_k11_d5 forward fp32 wide0/1 1036.1 wide0/2 1164.2 wide1/1 1215.1 wide0/3 1264.5 wide1/2 1323.2 wide0/4 1336.9
block256_k11_d5 forward tf32 wide1/1 362 wide0/1 362.5 wide2/1 422.8
block256_k11_d5 forward bf16 wide0/1 305.4 wide1/1 307.4 wide2/1 372.2
block128_k1 forward fp32 narrow 139 resident 148.4 wide0/1 180.3
block128_k1 forward tf32 boxes 94.1 resident 101.8 narrow 106.7
block128_k1 forward bf16 resident 56.5 narrow 85.7
block128_k3 forward fp32 rows 123.3 resident 183
block128_k3 forward tf32 rows 81.7 resident 114.5
block128_k3 forward bf16 rows 48.4 resident 66
block128_k3_d5 forward fp32 resident 179.4 wide0/1 267.7
block128_k3_d5 forward tf32 resident 111 wide1/1 162.8
block128_k3_d5 forward bf16 resident 65.8 wide0/1 113.8
block128_k7 forward fp32 wide0/1 400.4 wide1/1 400.8
block128_k7 forward tf32 resident 170.3 wide1/1 196.6 wide0/1 197.5 wide2/1 214
block128_k7 forward bf16 resident 100.9 wide1/1 149.3
block128_k7_d5 forward fp32 wide0/1 410.9 wide1/1 466.1
block128_k7_d5 forward tf32 resident 175 wide0/1 215.3 wide1/1 215.5 wide2/1 223.9
block128_k7_d5 forward bf16 resident 100.6 wide0/1 151.9
block128_k11 forward fp32 wide0/1 533.5 wide1/1 540 wide0/2 678.1 wide1/2 680.4
block128_k11 forward tf32 wide1/1 240.6 wide0/1 242.4 wide2/1 269.9
block128_k11 forward bf16 wide1/1 192.7 wide0/1 192.8 wide2/1 230
block128_k11_d5 forward fp32 wide0/1 598.3 wide1/1 692.6 wide0/2 734.6
block128_k11_d5 forward tf32 wide1/1 247.4 wide0/1 249.1 wide2/1 285.1
block128_k11_d5 forward bf16 wide0/1 196 wide1/1 196.9 wide2/1 240.5
block96_k1 forward fp32 boxes 100.9 resident 123.1 narrow 130.2
block96_k1 forward tf32 boxes 90.6 narrow 112 resident 114
block96_k1 forward bf16 resident 61.6 narrow 90.6
block96_k3 forward fp32 resident 179.5 rows 246
block96_k3 forward tf32 boxes 95.2 rows 120.1 narrow 122.7 resident 123
block96_k3 forward bf16 rows 66.6 resident 71.7
block96_k3_d5 forward fp32 resident 183.8 wide0/1 274
block96_k3_d5 forward tf32 resident 121 narrow 122.6 boxes 125.1
block96_k3_d5 forward bf16 resident 70.6 narrow 99.4
block96_k7 forward fp32 wide0/1 400.8 wide1/1 405
block96_k7 forward tf32 resident 173.6 wide0/1 206.8 wide1/1 218.5 wide2/1 219.4
block96_k7 forward bf16 resident 105.5 wide0/1 158.2
block96_k7_d5 forward fp32 wide0/1 411.8 wide1/1 473.8
block96_k7_d5 forward tf32 resident 178.7 wide0/1 209.9 wide1/1 220.5 wide2/1 227.8
block96_k7_d5 forward bf16 resident 105.5 wide0/1 162.8
block96_k11 forward fp32 wide0/1 535.9 wide1/1 546
block96_k11 forward tf32 resident 202.4 wide0/1 245 wide1/1 257
block96_k11 forward bf16 resident 158.3 wide0/1 198.5 wide1/1 202.7
block96_k11_d5 forward fp32 wide0/1 597.7 wide1/1 704.2
block96_k11_d5 forward tf32 wide0/1 273.4 wide1/1 287.3 wide2/1 304.2
block96_k11_d5 forward bf16 resident 184.1 wide0/1 204.5 wide1/1 211.3
block64_k1 forward fp32 boxes 78.4 resident 80.8 narrow 82.6
block64_k1 forward tf32 boxes 75.9 narrow 76 resident 77.2
block64_k1 forward bf16 resident 41.6 turned 53.7
block64_k3 forward fp32 resident 105.5 wide1/1 222
block64_k3 forward tf32 boxes 77.5 narrow 82.8 resident 83.9
block64_k3 forward bf16 resident 47.4 turned 55.8 narrow 58.9
block64_k3_d5 forward fp32 resident 105.4 wide1/1 211.8
block64_k3_d5 forward tf32 boxes 76.6 resident 78.2 narrow 79.2
block64_k3_d5 forward bf16 resident 45.5 turned 55.7 narrow 59.1
block64_k7 forward fp32 resident 150.4 wide1/1 284.8
block64_k7 forward tf32 resident 89.1 wide1/1 166.8
block64_k7 forward bf16 resident 61.2 wide1/1 116.6
block64_k7_d5 forward fp32 streamed 295.2 wide1/1 315.9
block64_k7_d5 forward tf32 resident 102 wide1/1 172.4
block64_k7_d5 forward bf16 resident 60.2 wide1/1 118.5
block64_k11 forward fp32 wide1/1 351.6 streamed 444.8
block64_k11 forward tf32 resident 115.4 wide1/1 190
block64_k11 forward bf16 resident 77.3 wide1/1 140.2
block64_k11_d5 forward fp32 wide1/1 434.2 streamed 446
block64_k11_d5 forward tf32 resident 122.2 wide1/1 195.6
block64_k11_d5 forward bf16 resident 77.6 wide1/1 144.6
block32_k1 forward fp32 boxes 76.3 resident 100.5
block32_k1 forward tf32 resident 76.6 boxes 77 narrow 94
block32_k1 forward bf16 resident 49.4 turned 51.2
block32_k3 forward fp32 boxes 77.7 narrow 116.3
block32_k3 forward tf32 boxes 78.3 resident 84.4 narrow 98.2
block32_k3 forward bf16 turned 52 resident 57
block32_k3_d5 forward fp32 boxes 79.5 narrow 113.6
block32_k3_d5 forward tf32 boxes 78.1 resident 81.5 narrow 93.8
block32_k3_d5 forward bf16 turned 51.9 resident 56.7
block32_k7 forward fp32 boxes 93.8 narrow 145.1
block32_k7 forward tf32 boxes 79 resident 96.4
block32_k7 forward bf16 turned 67.9 resident 70.7
block32_k7_d5 forward fp32 boxes 106.1 narrow 146.3
block32_k7_d5 forward tf32 boxes 79.1 resident 96.7
block32_k7_d5 forward bf16 turned 65.6 resident 70.8
block32_k11 forward fp32 resident 248.9 wide1/1 390.7
block32_k11 forward tf32 resident 114 wide1/1 222
block32_k11 forward bf16 resident 83.5 wide1/1 154.4
block32_k11_d5 forward fp32 resident 223.6 wide1/1 446.9
block32_k11_d5 forward tf32 resident 139.3 wide1/1 230.8
block32_k11_d5 forward bf16 resident 90.5 wide1/1 159.2
)";

}  // namespace polyphase::testing

#pragma once
// Times of the kernels of choice/kernels.cpp in two runs of bench/conv_transpose1d --forms (its shapes and its blocks): NVIDIA
// H200, 2026-11-23; the lines of fp32 with phased_stride2 are of 2026-11-30.

namespace polyphase::testing {

/// One case a line, by its name in bench/shapes.hpp: kernels and their microseconds, the fastest first; the median of five
/// bursts of 12, with packed weights. `preconverted1/2` is shape 1 of the preconverted kernel in 2 slices.
inline constexpr const char* kMeasuredKernels = R"(
B forward fp32 source_bulk 365.7 stationary 416.2
B forward bf16 source_bulk 191.6 source_tma_16bit 243.1
B forward tf32 source_bulk 366.8 stationary 396.9
C forward fp32 source_tma 448.8 source_bulk 603.2
C forward bf16 source_tma_16bit 258.8 stationary 314.3 source_bulk 333.4
C forward tf32 source_tma 423.3 source_bulk 462.3 stationary 495.2
hifigan_up0 forward fp32 preconverted0/1 93.7 preconverted1/1 109.7
hifigan_up0 forward bf16 phased_stride4 27.9 preconverted2/1 46.9
hifigan_up0 forward tf32 preconverted2/1 52.2 preconverted0/1 59.2 preconverted1/1 59.4
hifigan_up1 forward fp32 preconverted0/1 200.7 preconverted1/1 201.6
hifigan_up1 forward bf16 phased_stride4 59.1 preconverted0/1 79.2
hifigan_up1 forward tf32 preconverted0/1 112.9 preconverted1/1 116.5 preconverted2/1 116.8
hifigan_up2 forward fp32 phased_stride2 120.4 stationary 211.8 preconverted1/1 229.3 preconverted0/1 231.6
hifigan_up2 forward bf16 phased_stride2 51.9 stationary 83.3
hifigan_up2 forward tf32 phased_stride2 90.9 source_bulk 130
hifigan_up3 forward fp32 source_bulk 100.3 phased_stride2 101.4 stationary 127.9
hifigan_up3 forward bf16 phased_stride2 47.8 source_bulk 62.4
hifigan_up3 forward tf32 stationary 79.8 source_bulk 83 phased_stride2 87.6
dac_up0 forward fp32 preconverted0/2 114.5 preconverted1/2 115.3 preconverted1/1 120.7 preconverted0/1 121.4 preconverted0/4 127.9 preconverted1/4 128.9 preconverted0/3 130.9 preconverted1/3 131.7 preconverted0/6 141
dac_up0 forward bf16 phased_stride4 35.3 preconverted0/1 39.5 preconverted1/1 42
dac_up0 forward tf32 preconverted0/1 44.3 preconverted1/1 47 preconverted2/1 56
dac_up1 forward fp32 preconverted0/1 181 preconverted1/1 185.8 preconverted0/2 221.3 preconverted1/2 222.6
dac_up1 forward bf16 phased_stride4 54.5 preconverted0/1 63.1 preconverted1/1 64.6
dac_up1 forward tf32 preconverted0/1 78.4 preconverted1/1 78.7 preconverted2/1 89.3
dac_up2 forward fp32 preconverted0/1 189.6 preconverted1/1 190.2
dac_up2 forward bf16 phased_stride4 50.3 preconverted0/1 77.1
dac_up2 forward tf32 preconverted0/1 102.2 preconverted1/1 104.9 preconverted2/1 111.1
dac_up3 forward fp32 preconverted1/1 169.9 stationary 189.2
dac_up3 forward bf16 phased_stride2 40.3 stationary 75.6
dac_up3 forward tf32 phased_stride2 65.5 stationary 103.3
oobleck0 forward fp32 preconverted0/3 127.9 preconverted1/3 129.5 preconverted0/2 135 preconverted1/2 136.5 preconverted0/6 146.3 preconverted0/4 146.6 preconverted1/6 147.4 preconverted1/4 148.1 preconverted0/1 154
oobleck0 forward bf16 preconverted0/1 48.6 preconverted0/3 61.2 preconverted2/2 62.5
oobleck0 forward tf32 preconverted0/1 52.1 preconverted2/2 68.5
oobleck4 forward fp32 phased_stride2 190.4 preconverted1/1 312 preconverted0/1 314.8 stationary 315.8
oobleck4 forward bf16 phased_stride2 69.6 stationary 120.3
oobleck4 forward tf32 phased_stride2 116.8 source_bulk 190.1
demucs forward fp32 preconverted0/1 224.6 preconverted1/1 225.5
demucs forward bf16 phased_stride4 59.5 preconverted0/1 90
demucs forward tf32 preconverted0/1 118.9 preconverted1/1 122.2 preconverted2/1 129.8
wavegan forward fp32 phased_stride4 451.5 preconverted0/1 570.8 preconverted1/1 574.2
wavegan forward bf16 phased_stride4 141.4 preconverted0/1 193.7
wavegan forward tf32 preconverted0/1 229.2 preconverted1/1 230.5 preconverted2/1 254.4
grouped forward fp32 stationary 263.1 preconverted0/1 342.2
grouped forward bf16 preconverted1/1 146.3 preconverted0/1 150.1
grouped forward tf32 source_bulk 147.6 stationary 161.5
A forward fp32 stride1 1870.7 stationary 2855.1
A forward bf16 stride1 701.5 stationary 1027.6
A forward tf32 stride1 1180.4 stationary 1595.2
B dgrad fp32 source_bulk 341.2 stationary 374.3
B dgrad bf16 source_bulk 201.9 stationary 216.7
B dgrad tf32 source_bulk 341.4 stationary 346
C dgrad fp32 source_tma 520.6 source_bulk 662.8
C dgrad bf16 source_tma_16bit 268.3 stationary 337.3
C dgrad tf32 source_tma 411.6 source_bulk 468.9 stationary 472.9
hifigan_up0 dgrad fp32 preconverted0/1 109.3 preconverted0/2 119.3 preconverted0/3 122.9 preconverted0/4 127.5
hifigan_up0 dgrad bf16 preconverted2/1 45.4 preconverted2/2 55.7 preconverted2/3 58.7
hifigan_up0 dgrad tf32 preconverted2/1 53.8 preconverted2/2 64.6 preconverted2/3 67.6
hifigan_up1 dgrad fp32 preconverted0/1 263.4 preconverted1/1 265.8 preconverted0/2 297.2 preconverted1/2 299.9 preconverted0/4 337.9 preconverted1/4 341.3
hifigan_up1 dgrad bf16 preconverted0/1 101.2 preconverted1/1 106.2 preconverted2/1 109.3
hifigan_up1 dgrad tf32 preconverted0/1 125.6 preconverted1/1 128.4 preconverted2/1 130.1
hifigan_up2 dgrad fp32 stationary 181.9 preconverted0/1 230.2 preconverted1/1 231.3
hifigan_up2 dgrad bf16 stationary 77.9 source_bulk 80.8
hifigan_up2 dgrad tf32 source_bulk 100.9 stationary 115
hifigan_up3 dgrad fp32 source_bulk 89 stationary 89.4
hifigan_up3 dgrad bf16 source_bulk 49.5 stationary 50.5
hifigan_up3 dgrad tf32 source_bulk 82.1 stationary 83.3
dac_up0 dgrad fp32 preconverted0/8 117.7 preconverted1/8 118.5 preconverted0/2 127.9 preconverted1/2 128.9 preconverted0/4 136.2 preconverted1/4 137.2 preconverted0/12 138.2 preconverted1/12 138.9 preconverted0/6 141.4
dac_up0 dgrad bf16 preconverted2/2 50.1 preconverted2/4 54.7 preconverted0/4 55.1 preconverted2/8 55.2 preconverted1/4 58 preconverted2/6 59.2 preconverted0/3 61.8 preconverted2/3 64.2 preconverted1/3 64.7
dac_up0 dgrad tf32 preconverted2/2 55.9 preconverted2/4 60.5 preconverted2/8 60.6 preconverted0/4 63.5 preconverted2/6 65.3 preconverted1/4 66 preconverted0/3 69.7 preconverted2/3 70.6
dac_up1 dgrad fp32 preconverted0/4 198.7 preconverted0/3 201 preconverted1/3 204 preconverted0/2 213.6 preconverted1/2 216.4 preconverted0/6 219.7 preconverted1/6 221.5 preconverted1/4 229.7 preconverted0/12 239.7
dac_up1 dgrad bf16 preconverted0/1 79.1 preconverted1/1 81.6 preconverted2/3 83.2 preconverted2/2 83.7 preconverted0/3 85.1 preconverted1/3 86.4 preconverted2/4 86.6 preconverted2/1 88.4 preconverted0/2 97.4
dac_up1 dgrad tf32 preconverted0/1 89.5 preconverted1/1 92.7 preconverted2/3 95.1 preconverted2/2 95.5 preconverted1/3 98.9 preconverted0/3 98.9 preconverted2/4 99.1 preconverted2/1 100.6 preconverted0/2 110
dac_up2 dgrad fp32 preconverted0/1 209.8 preconverted1/1 211.2 preconverted0/2 253.2 preconverted1/2 254.4
dac_up2 dgrad bf16 preconverted2/1 85 preconverted0/1 87.2 preconverted1/1 89.9
dac_up2 dgrad tf32 preconverted2/1 104.7 preconverted0/1 111 preconverted1/1 114.2
dac_up3 dgrad fp32 preconverted1/1 160 preconverted0/1 197.3
dac_up3 dgrad bf16 stationary 67.6 preconverted1/1 72.3 preconverted0/1 82
dac_up3 dgrad tf32 preconverted1/1 100.5 stationary 102.7 preconverted0/1 116.8 preconverted2/1 120.6
oobleck0 dgrad fp32 preconverted1/4 119.6 preconverted0/4 119.9 preconverted1/8 126 preconverted0/8 126.1 preconverted0/3 145.4 preconverted1/3 146.2
oobleck0 dgrad bf16 preconverted2/4 51.6 preconverted2/3 57.8 preconverted2/8 59.2 preconverted0/8 62
oobleck0 dgrad tf32 preconverted2/4 57 preconverted2/3 63.6 preconverted2/8 65.1 preconverted0/8 72.2 preconverted2/6 74
oobleck4 dgrad fp32 preconverted0/1 311.1 preconverted1/1 313.5
oobleck4 dgrad bf16 stationary 114.9 preconverted0/1 136.3 preconverted1/1 143.3 preconverted2/1 149.2
oobleck4 dgrad tf32 stationary 173.6 preconverted0/1 182.5 preconverted1/1 189.1 preconverted2/1 190.1
demucs dgrad fp32 preconverted0/1 255.8 preconverted1/1 258.2 preconverted0/2 305.4 preconverted1/2 307.5 preconverted0/3 329.7 preconverted1/3 330.2
demucs dgrad bf16 preconverted0/1 98.1 preconverted1/1 101.8 preconverted2/1 107.4
demucs dgrad tf32 preconverted0/1 124.6 preconverted1/1 127.3 preconverted2/1 128.8
wavegan dgrad fp32 preconverted0/1 611.2 preconverted1/1 622 preconverted0/2 685 preconverted1/2 693.1 preconverted0/4 755.3 preconverted1/4 760.1
wavegan dgrad bf16 preconverted1/1 213.4 preconverted0/1 213.8 preconverted2/1 241.5
wavegan dgrad tf32 preconverted0/1 236.6 preconverted1/1 236.7 preconverted2/1 262.8
grouped dgrad fp32 preconverted1/1 386
grouped dgrad bf16 preconverted1/1 174 preconverted0/1 213.1
grouped dgrad tf32 stationary 123.7 preconverted1/1 229.3
A dgrad fp32 stride1 1940.5 stationary 2746.7
A dgrad bf16 stride1 744.6 stationary 932.4
A dgrad tf32 stride1 1116.6 stationary 1594.8
block256_k1 forward fp32 preconverted0/1 216.5 preconverted1/1 228.2 stationary 272.8
block256_k1 forward tf32 preconverted0/1 144.7 preconverted1/1 145.9 preconverted2/1 161.2 stationary 167.3
block256_k1 forward bf16 stationary 92.6 preconverted0/1 100.4 preconverted1/1 103.5
block256_k3 forward fp32 preconverted0/1 369.2 preconverted1/1 372.2
block256_k3 forward tf32 preconverted0/1 193.8 preconverted1/1 195.1 preconverted2/1 207.5
block256_k3 forward bf16 stationary 138.4 preconverted1/1 138.9 preconverted0/1 140.5 preconverted2/1 165.8
block256_k3_d5 forward fp32 preconverted0/1 374.4 preconverted1/1 377.8
block256_k3_d5 forward tf32 preconverted1/1 188.9 preconverted0/1 190.5 preconverted2/1 207.7
block256_k3_d5 forward bf16 stationary 138.8 preconverted1/1 141 preconverted0/1 142.4 preconverted2/1 169.5
block256_k7 forward fp32 preconverted0/1 634.5 preconverted1/1 639.2 preconverted0/2 772.7 preconverted1/2 775.6
block256_k7 forward tf32 preconverted1/1 266.8 preconverted0/1 268.8 preconverted2/1 293.9
block256_k7 forward bf16 preconverted1/1 217.6 preconverted0/1 218.5 preconverted2/1 254.4
block256_k7_d5 forward fp32 preconverted0/1 653.2 preconverted1/1 761.3 preconverted0/2 789.1
block256_k7_d5 forward tf32 preconverted1/1 272.3 preconverted0/1 273.2 preconverted2/1 302.9
block256_k7_d5 forward bf16 preconverted0/1 219.7 preconverted1/1 220 preconverted2/1 261.6
block256_k11 forward fp32 preconverted0/1 896.2 preconverted1/1 910.1 preconverted0/2 1037.6 preconverted1/2 1053.7 preconverted0/3 1134.9 preconverted1/3 1154.3
block256_k11 forward tf32 preconverted1/1 355.1 preconverted0/1 356 preconverted2/1 406
block256_k11 forward bf16 preconverted0/1 300.6 preconverted1/1 301.3 preconverted2/1 358.9
block256_k11_d5 forward fp32 preconverted0/1 1036.1 preconverted0/2 1164.2 preconverted1/1 1215.1 preconverted0/3 1264.5 preconverted1/2 1323.2 preconverted0/4 1336.9
block256_k11_d5 forward tf32 preconverted1/1 362 preconverted0/1 362.5 preconverted2/1 422.8
block256_k11_d5 forward bf16 preconverted0/1 305.4 preconverted1/1 307.4 preconverted2/1 372.2
block128_k1 forward fp32 source_bulk 139 stationary 148.4 preconverted0/1 180.3
block128_k1 forward tf32 source_tma 94.1 stationary 101.8 source_bulk 106.7
block128_k1 forward bf16 stationary 56.5 source_bulk 85.7
block128_k3 forward fp32 stride1 123.3 stationary 183
block128_k3 forward tf32 stride1 81.7 stationary 114.5
block128_k3 forward bf16 stride1 48.4 stationary 66
block128_k3_d5 forward fp32 stationary 179.4 preconverted0/1 267.7
block128_k3_d5 forward tf32 stationary 111 preconverted1/1 162.8
block128_k3_d5 forward bf16 stationary 65.8 preconverted0/1 113.8
block128_k7 forward fp32 preconverted0/1 400.4 preconverted1/1 400.8
block128_k7 forward tf32 stationary 170.3 preconverted1/1 196.6 preconverted0/1 197.5 preconverted2/1 214
block128_k7 forward bf16 stationary 100.9 preconverted1/1 149.3
block128_k7_d5 forward fp32 preconverted0/1 410.9 preconverted1/1 466.1
block128_k7_d5 forward tf32 stationary 175 preconverted0/1 215.3 preconverted1/1 215.5 preconverted2/1 223.9
block128_k7_d5 forward bf16 stationary 100.6 preconverted0/1 151.9
block128_k11 forward fp32 preconverted0/1 533.5 preconverted1/1 540 preconverted0/2 678.1 preconverted1/2 680.4
block128_k11 forward tf32 preconverted1/1 240.6 preconverted0/1 242.4 preconverted2/1 269.9
block128_k11 forward bf16 preconverted1/1 192.7 preconverted0/1 192.8 preconverted2/1 230
block128_k11_d5 forward fp32 preconverted0/1 598.3 preconverted1/1 692.6 preconverted0/2 734.6
block128_k11_d5 forward tf32 preconverted1/1 247.4 preconverted0/1 249.1 preconverted2/1 285.1
block128_k11_d5 forward bf16 preconverted0/1 196 preconverted1/1 196.9 preconverted2/1 240.5
block96_k1 forward fp32 source_tma 100.9 stationary 123.1 source_bulk 130.2
block96_k1 forward tf32 source_tma 90.6 source_bulk 112 stationary 114
block96_k1 forward bf16 stationary 61.6 source_bulk 90.6
block96_k3 forward fp32 stationary 179.5 stride1 246
block96_k3 forward tf32 source_tma 95.2 stride1 120.1 source_bulk 122.7 stationary 123
block96_k3 forward bf16 stride1 66.6 stationary 71.7
block96_k3_d5 forward fp32 stationary 183.8 preconverted0/1 274
block96_k3_d5 forward tf32 stationary 121 source_bulk 122.6 source_tma 125.1
block96_k3_d5 forward bf16 stationary 70.6 source_bulk 99.4
block96_k7 forward fp32 preconverted0/1 400.8 preconverted1/1 405
block96_k7 forward tf32 stationary 173.6 preconverted0/1 206.8 preconverted1/1 218.5 preconverted2/1 219.4
block96_k7 forward bf16 stationary 105.5 preconverted0/1 158.2
block96_k7_d5 forward fp32 preconverted0/1 411.8 preconverted1/1 473.8
block96_k7_d5 forward tf32 stationary 178.7 preconverted0/1 209.9 preconverted1/1 220.5 preconverted2/1 227.8
block96_k7_d5 forward bf16 stationary 105.5 preconverted0/1 162.8
block96_k11 forward fp32 preconverted0/1 535.9 preconverted1/1 546
block96_k11 forward tf32 stationary 202.4 preconverted0/1 245 preconverted1/1 257
block96_k11 forward bf16 stationary 158.3 preconverted0/1 198.5 preconverted1/1 202.7
block96_k11_d5 forward fp32 preconverted0/1 597.7 preconverted1/1 704.2
block96_k11_d5 forward tf32 preconverted0/1 273.4 preconverted1/1 287.3 preconverted2/1 304.2
block96_k11_d5 forward bf16 stationary 184.1 preconverted0/1 204.5 preconverted1/1 211.3
block64_k1 forward fp32 source_tma 78.4 stationary 80.8 source_bulk 82.6
block64_k1 forward tf32 source_tma 75.9 source_bulk 76 stationary 77.2
block64_k1 forward bf16 stationary 41.6 source_tma_16bit 53.7
block64_k3 forward fp32 stationary 105.5 preconverted1/1 222
block64_k3 forward tf32 source_tma 77.5 source_bulk 82.8 stationary 83.9
block64_k3 forward bf16 stationary 47.4 source_tma_16bit 55.8 source_bulk 58.9
block64_k3_d5 forward fp32 stationary 105.4 preconverted1/1 211.8
block64_k3_d5 forward tf32 source_tma 76.6 stationary 78.2 source_bulk 79.2
block64_k3_d5 forward bf16 stationary 45.5 source_tma_16bit 55.7 source_bulk 59.1
block64_k7 forward fp32 stationary 150.4 preconverted1/1 284.8
block64_k7 forward tf32 stationary 89.1 preconverted1/1 166.8
block64_k7 forward bf16 stationary 61.2 preconverted1/1 116.6
block64_k7_d5 forward fp32 preconverted1/1 315.9
block64_k7_d5 forward tf32 stationary 102 preconverted1/1 172.4
block64_k7_d5 forward bf16 stationary 60.2 preconverted1/1 118.5
block64_k11 forward fp32 preconverted1/1 351.6
block64_k11 forward tf32 stationary 115.4 preconverted1/1 190
block64_k11 forward bf16 stationary 77.3 preconverted1/1 140.2
block64_k11_d5 forward fp32 preconverted1/1 434.2
block64_k11_d5 forward tf32 stationary 122.2 preconverted1/1 195.6
block64_k11_d5 forward bf16 stationary 77.6 preconverted1/1 144.6
block32_k1 forward fp32 source_tma 76.3 stationary 100.5
block32_k1 forward tf32 stationary 76.6 source_tma 77 source_bulk 94
block32_k1 forward bf16 stationary 49.4 source_tma_16bit 51.2
block32_k3 forward fp32 source_tma 77.7 source_bulk 116.3
block32_k3 forward tf32 source_tma 78.3 stationary 84.4 source_bulk 98.2
block32_k3 forward bf16 source_tma_16bit 52 stationary 57
block32_k3_d5 forward fp32 source_tma 79.5 source_bulk 113.6
block32_k3_d5 forward tf32 source_tma 78.1 stationary 81.5 source_bulk 93.8
block32_k3_d5 forward bf16 source_tma_16bit 51.9 stationary 56.7
block32_k7 forward fp32 source_tma 93.8 source_bulk 145.1
block32_k7 forward tf32 source_tma 79 stationary 96.4
block32_k7 forward bf16 source_tma_16bit 67.9 stationary 70.7
block32_k7_d5 forward fp32 source_tma 106.1 source_bulk 146.3
block32_k7_d5 forward tf32 source_tma 79.1 stationary 96.7
block32_k7_d5 forward bf16 source_tma_16bit 65.6 stationary 70.8
block32_k11 forward fp32 stationary 248.9 preconverted1/1 390.7
block32_k11 forward tf32 stationary 114 preconverted1/1 222
block32_k11 forward bf16 stationary 83.5 preconverted1/1 154.4
block32_k11_d5 forward fp32 stationary 223.6 preconverted1/1 446.9
block32_k11_d5 forward tf32 stationary 139.3 preconverted1/1 230.8
block32_k11_d5 forward bf16 stationary 90.5 preconverted1/1 159.2
)";

}  // namespace polyphase::testing

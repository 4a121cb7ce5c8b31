#pragma once
// What the tiles of the weight gradient took in one run of bench/conv_transpose1d --forms: NVIDIA H200, 2026-11-22. Some that
// the host's own work held up there, in hifigan_up2 and hifigan_up3, are from another run.

namespace polyphase::testing {

/// A case a line, by its name in bench/shapes.hpp: tiles and their microseconds, the fastest first; the middle of five bursts
/// of 12. `r64x2x`: by rows, 64 columns and 2 shifts, the rows x's; `w`: by words; `y` at the end: the rows are y's.
inline constexpr const char* kMeasuredWgrads = R"(
B fp32 r32x3y 338 r32x5y 347.3 r32x3x 418.3
B bf16 r32x3y 178 r32x5y 180.8 r64x3y 181.3 r64x3x 188.4 r128x3x 206.1 r32x3x 230.7 r32x5x 245.6
B tf32 r32x3y 333.9 r32x5y 335.2 r64x3y 338.7 r64x3x 348.2 r32x3x 353.3 r32x5x 357 w64x3x 446.5 w64x3y 452.8 w32x3y 462
C fp32 r32x5y 567.9 r32x3y 824.4
C bf16 r32x5y 254.8
C tf32 r32x5y 407.4 r32x5x 567.5
hifigan_up0 fp32 r64x2x 132.3 r128x1x 157.9 r64x3x 161.2 r128x1y 183 r64x1x 192 r64x2y 192.7
hifigan_up0 bf16 r64x2x 64.8 r128x2x 69.1 r64x3x 71.1 r128x3x 74.1 r128x1x 84.7
hifigan_up0 tf32 r64x2x 95.1 r64x3x 98.6 r128x1x 122.5 r128x2x 123.1 r128x3x 131.9
hifigan_up1 fp32 r64x2x 263.9 r128x1x 314.8 r64x2y 322.8 r64x3x 326.2 r128x1y 344.4 r64x1x 347.3 r64x3y 360.6 r32x3x 375
hifigan_up1 bf16 r64x2x 103.4 r128x2x 104.7 r128x3x 114.3 r64x3x 116 r128x1x 143.5 r32x3x 153.7
hifigan_up1 tf32 r64x2x 186.3 r128x2x 187.3 r64x3x 196.1 r128x3x 210.3 r128x1x 236.1 r64x2y 253.8 r64x3y 255.7 r64x1x 261.7
hifigan_up2 fp32 r64x2x 149.1 r64x2y 156 r64x3x 176.4 r128x1x 176.4 r128x1y 177.1 r64x3y 183.6 r64x1x 185.4 r32x3x 197.1
hifigan_up2 bf16 r64x2x 80.4 r64x2y 85.6 r64x3y 87.1 r64x3x 88.7 r32x3x 88.7 r128x3x 95.1 r64x1x 97.9 r128x1y 99.7
hifigan_up2 tf32 r64x2x 112 r64x3x 117.2 r32x3x 130.3 r128x3x 130.4 r128x2x 132.5 r128x1x 136 r64x2y 137.5 r64x3y 138.3
hifigan_up3 fp32 r64x2x 115.4 r64x2y 115.9 r64x3y 123.3 r64x3x 128.3 r64x1x 141.9 r64x1y 149.4 r32x3y 153.5 r32x3x 154.7
hifigan_up3 bf16 r32x3x 55.1 r64x2y 65.5 r64x3y 66.5 r32x3y 70 r64x2x 72 r32x5x 72.6 r64x3x 73.8 r32x5y 74.8 r128x2x 76.3
hifigan_up3 tf32 r64x2x 108.3 r64x2y 108.3 r64x3y 108.8 r64x3x 111.3 r128x2x 112.5 r128x3x 118.9 r64x1x 121.4 r32x3x 125.4
dac_up0 fp32 r64x2x 220.4 r128x1x 247.5 r64x3x 251.5 r64x2y 296.7 r64x3y 320 r64x1x 320 r128x1y 325.9
dac_up0 bf16 r128x2x 202.4 r128x3x 203.5 r64x2x 217.2 r64x3x 223.1 r128x1x 237.1 r32x3x 287.5 r64x2y 289.9 r64x1x 293.4
dac_up0 tf32 r128x2x 231 r128x3x 245.4 r64x2x 250 r64x3x 254.7 r128x1x 287.7 r32x3x 333.5 r64x3y 335.4 r64x2y 338.7
dac_up1 fp32 r64x2x 307.4 r64x3x 365 r128x1x 368.1 r64x2y 393 r64x1x 394.4 r32x3x 425.6 r128x1y 438.6 r64x3y 441.3
dac_up1 bf16 r64x2x 170.2 r64x3x 183.3 r128x2x 188.1 r128x3x 197.7 r32x3x 204.1 r128x1x 211.8 r64x1x 217.7 r32x5x 228.8
dac_up1 tf32 r64x2x 226.1 r64x3x 239.3 r128x2x 246.9 r128x3x 284.6 r128x1x 286.2 r32x3x 287.9 r64x1x 304.8 r32x5x 305.4
dac_up2 fp32 r64x2x 239.5 r128x1x 292.5 r64x2y 293.5 r64x3x 296.6 r128x1y 338.9 r64x3y 341.6 r64x1x 351.9
dac_up2 bf16 r128x2x 98.1 r128x3x 106.9 r64x2x 114.6 r64x3x 126.2
dac_up2 tf32 r128x2x 127.5 r128x3x 151.1 r64x2x 155.8 r64x3x 164.4
dac_up3 fp32 r64x2x 159.2 r64x2y 171.5 r64x3x 197.2 r64x3y 211.7 r64x1x 217.2 r32x3x 233.5
dac_up3 bf16 r64x2x 83.2 r64x2y 88 r64x3x 91.1 r64x3y 92.9 r32x3x 102.4 r128x2x 107.5 r128x3x 116.2 r64x1x 117.1 r32x5x 118.3
dac_up3 tf32 r64x2x 110.8 r64x3x 117.5 r128x2x 134.4 r64x3y 140.4 r64x2y 140.8 r32x3x 143.9 r128x3x 156.7 r32x5x 157.2
oobleck0 fp32 r64x2y 586.4 r64x3y 616.3 r64x1y 718.3 r32x3y 728.8 w64x2y 731.5 w64x3y 760.5 w128x1y 769.4 r64x2x 779.5
oobleck4 fp32 r64x2x 212.7 r64x2y 231.2 r128x1x 256.5 r64x3x 257.7 r128x1y 267 r64x3y 284.2 r64x1x 289.5 r32x3x 308.9
oobleck4 bf16 r64x2x 107.2 r64x2y 119.1 r64x3x 119.2 r64x3y 124.3 r128x2x 127.8 r128x3x 130.3 r32x3x 133.5 r128x1x 137.4
oobleck4 tf32 r64x2x 148.3 r64x3x 156.5 r128x2x 164.2 r128x3x 175.6 r128x1x 187.6 r32x3x 193.7 r64x2y 199.2 r64x3y 202.8
demucs fp32 r64x2x 275.5 r128x1x 336.2 r64x3x 341.6 r64x2y 345.1 r128x1y 394.4 r64x3y 403.8
demucs bf16 r128x2x 111.6 r128x3x 122.1 r64x2x 139.1 r64x3x 154.7
demucs tf32 r128x2x 144.6 r128x3x 173.3 r64x2x 190.2 r64x3x 200.7
wavegan fp32 r64x2x 826.4 r64x3x 899.9 r32x5x 946.3 r128x1x 956.5 r64x3y 1045.4 r32x3x 1048.1 r128x1y 1071 r64x2y 1077.7
wavegan bf16 r128x2x 373.1 r32x5x 378.9 r64x2x 408.9 r128x3x 413.8 r64x3x 442.2 r32x3x 471.4 r128x1x 538.9
wavegan tf32 r128x2x 461.8 r32x5x 490.4 r128x3x 527.8 r64x3x 537.9 r64x2x 550.3 r32x3x 647.5
grouped fp32 r64x2y 277.9 r32x5x 279.2 r64x2x 297.9 r32x5y 310.6 r64x3y 336.8 r64x3x 344.4 r32x3x 395.8 r64x1y 413.2
grouped bf16 r32x5x 135.6 r32x5y 137.7 r64x2y 144.8 r64x3y 152.8 r64x2x 165.7 r128x2x 176.5 r64x3x 180 r32x3x 191
grouped tf32 r32x5x 166.8 r32x5y 194.5 r64x2x 223.6 r64x3x 235.3 r64x2y 247.2 r64x3y 247.7
A fp32 r64x3x 2288.1 r64x3y 2341.2 r32x3x 3243.2 r64x2x 3427.8
A bf16 r128x3x 845.4 r64x3x 938.1 r64x3y 1055.8 r32x3x 1253.8
A tf32 r128x3x 1249.1 r64x3x 1401.3 r64x3y 1586.6
)";

}  // namespace polyphase::testing

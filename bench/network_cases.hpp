#pragma once
// The cases of bench/networks: published networks at their full size, with the names of their records.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace polyphase::bench {

/// forward: the whole input in one call. stream: pushes into a Stream, one after another. step: forward, backward and update.
/// gan: a step of the generator and its discriminators, as published.
enum class NetworkRun { forward, stream, step, gan };

[[nodiscard]] constexpr bool is_training(NetworkRun run) { return run == NetworkRun::step || run == NetworkRun::gan; }

struct NetworkCase {
  std::string_view name;     ///< in records: the part before the size, and the name of networks/NAME.json without `config`
  std::string_view network;  ///< in the registry
  NetworkRun run = NetworkRun::forward;
  std::int64_t N = 1;
  std::int64_t frames = 0;       ///< of the input; 0: ten seconds of audio
  std::string_view label{};      ///< in records: the part after the name; by default the size
  std::string_view config{};     ///< networks/CONFIG.json
  std::int64_t codebook_size{};  ///< for networks of codes
};

/// Most networks have these cases: 16 and one of ten seconds, and one short piece.
constexpr std::array<NetworkCase, 3> usual(std::string_view name, std::string_view network, std::int64_t piece,
                                           std::int64_t codebook_size = 0) {
  return {NetworkCase{.name = name, .network = network, .N = 16, .codebook_size = codebook_size},
          NetworkCase{.name = name, .network = network, .codebook_size = codebook_size},
          NetworkCase{.name = name, .network = network, .frames = piece, .codebook_size = codebook_size}};
}

inline constexpr std::array kNetworkCases = {
    NetworkCase{.name = "hifigan_v1", .network = "hifigan", .N = 16, .frames = 861, .label = "16x861"},
    NetworkCase{.name = "hifigan_v1", .network = "hifigan", .frames = 861, .label = "1x861"},
    NetworkCase{.name = "hifigan_v1", .network = "hifigan", .frames = 32, .label = "1x32"},
    // 8192 samples, the size of its training
    NetworkCase{.name = "hifigan_v1", .network = "hifigan", .run = NetworkRun::step, .N = 16, .frames = 32, .label = "train"},
    NetworkCase{.name = "hifigan_v1_gan",
                .network = "hifigan",
                .run = NetworkRun::gan,
                .N = 16,
                .frames = 32,
                .label = "16x8192",
                .config = "hifigan_v1"},
    NetworkCase{.name = "hifigan_v2", .network = "hifigan", .frames = 861, .label = "1x861"},
    NetworkCase{.name = "hifigan_v3", .network = "hifigan", .frames = 861, .label = "1x861"},
    usual("bigvgan_v2_24k_256x", "bigvgan", 32)[0],
    usual("bigvgan_v2_24k_256x", "bigvgan", 32)[1],
    usual("bigvgan_v2_24k_256x", "bigvgan", 32)[2],
    usual("bigvgan_v2_44k_512x", "bigvgan", 32)[0],
    usual("bigvgan_v2_44k_512x", "bigvgan", 32)[1],
    usual("bigvgan_v2_44k_512x", "bigvgan", 32)[2],
    usual("dac_44k", "dac", 32, 1024)[0],
    usual("dac_44k", "dac", 32, 1024)[1],
    usual("dac_44k", "dac", 32, 1024)[2],
    usual("encodec_24k", "encodec", 1, 1024)[0],
    usual("encodec_24k", "encodec", 1, 1024)[1],
    usual("encodec_24k", "encodec", 1, 1024)[2],
    usual("encodec_24k", "encodec", 8, 1024)[2],
    NetworkCase{.name = "encodec_24k_stream",
                .network = "encodec",
                .run = NetworkRun::stream,
                .frames = 1,
                .config = "encodec_24k",
                .codebook_size = 1024},
    usual("snac_24k", "snac", 32, 4096)[0],
    usual("snac_24k", "snac", 32, 4096)[1],
    // Our frame is four of the fastest codebook's frames.
    NetworkCase{.name = "snac_24k", .network = "snac", .frames = 8, .label = "1x32frames", .codebook_size = 4096},
    NetworkCase{.name = "mimi_decode", .network = "mimi", .N = 16, .config = "mimi", .codebook_size = 2048},
    NetworkCase{.name = "mimi_decode", .network = "mimi", .config = "mimi", .codebook_size = 2048},
    NetworkCase{.name = "mimi_decode", .network = "mimi", .frames = 1, .config = "mimi", .codebook_size = 2048},
    NetworkCase{.name = "mimi_decode", .network = "mimi", .frames = 8, .config = "mimi", .codebook_size = 2048},
    NetworkCase{.name = "mimi_stream",
                .network = "mimi",
                .run = NetworkRun::stream,
                .frames = 1,
                .config = "mimi",
                .codebook_size = 2048},
    NetworkCase{.name = "mimi_stream",
                .network = "mimi",
                .run = NetworkRun::stream,
                .frames = 8,
                .config = "mimi",
                .codebook_size = 2048},
    usual("oobleck_2.0", "oobleck", 32)[0],
    usual("oobleck_2.0", "oobleck", 32)[1],
    usual("oobleck_2.0", "oobleck", 32)[2],
    usual("vocos_24k", "vocos", 8)[0],
    usual("vocos_24k", "vocos", 8)[1],
    NetworkCase{.name = "vocos_24k_stream", .network = "vocos", .run = NetworkRun::stream, .frames = 8, .config = "vocos_24k"},
    usual("qwen3_12hz", "qwen3_12hz", 1, 2048)[0],
    usual("qwen3_12hz", "qwen3_12hz", 1, 2048)[1],
    usual("qwen3_12hz", "qwen3_12hz", 1, 2048)[2],
    NetworkCase{.name = "qwen3_12hz_stream",
                .network = "qwen3_12hz",
                .run = NetworkRun::stream,
                .frames = 1,
                .config = "qwen3_12hz",
                .codebook_size = 2048},
};

/// "dac_44k_16x10s", "encodec_24k_1x1frames", "hifigan_v1_train".
[[nodiscard]] inline std::string name_of(const NetworkCase& what) {
  const std::string size = what.frames == 0 ? std::to_string(what.N) + "x10s"
                                            : std::to_string(what.N) + "x" + std::to_string(what.frames) + "frames";
  return std::string(what.name) + "_" + (what.label.empty() ? size : std::string(what.label));
}

}  // namespace polyphase::bench

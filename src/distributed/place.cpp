#include "distributed/place.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "distributed/distributed_error.hpp"

namespace polyphase::distributed {
namespace {

// The variables of one launcher; null: it has none.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* job;
  const char* restart;  // distinguishes the restarts of one job
};

constexpr std::array kLaunchers{
    Launcher{"POLYPHASE_RANK", "POLYPHASE_RANK", "POLYPHASE_WORLD", "POLYPHASE_LOCAL_RANK", "POLYPHASE_JOB", nullptr},
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_MCA_ess_base_jobid", nullptr},
    Launcher{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_JOBID", nullptr},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};

class Variables {
 public:
  Variables(const ReadVariable& read, const char* launcher) : read_(read), launcher_(launcher) {}

  // Unset and empty variables are the same to a user.
  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    if (name == nullptr) return std::nullopt;
    std::optional<std::string> value = read_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  [[nodiscard]] std::string required(const char* name) const {
    const std::optional<std::string> value = text(name);
    require<DistributedError>(value.has_value(), "distributed::init: ", launcher_, " sets this process' rank, but ", name,
                              " is not set");
    return *value;
  }
  [[nodiscard]] int number(const char* name, int least, int most) const { return parse(name, required(name), least, most); }
  [[nodiscard]] int number_or(const char* name, int fallback, int least, int most) const {
    const std::optional<std::string> value = text(name);
    return value ? parse(name, *value, least, most) : fallback;
  }

 private:
  [[nodiscard]] static int parse(const char* name, const std::string& value, int least, int most) {
    int number = 0;
    const auto end = value.data() + value.size();
    const auto result = std::from_chars(value.data(), end, number);
    require<DistributedError>(result.ec == std::errc{} && result.ptr == end && number >= least && number <= most,
                              "distributed::init: expected ", name, " to be a whole number from ", least, " to ", most,
                              ", got \"", value, "\"");
    return number;
  }

  const ReadVariable& read_;
  const char* launcher_;
};

constexpr int kMostRanks = 1 << 20;

// "node[01-04,07],other" -> "node01": the first host of Slurm's compressed list.
std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('[');
  const std::size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of("-,]", bracket);
  const std::size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return list.substr(0, bracket);
  const std::size_t rest = std::min(list.find_first_of(",[", close), list.size());
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) + list.substr(close + 1, rest - close - 1);
}

constexpr int kSlurmPort = 29500;  // the first of the ports that are derived from it

void find_meeting_point(Place& place, const Variables& variables) {
  if (const auto address = variables.text("POLYPHASE_ADDRESS")) {
    place.address = *address;
  } else if (place.launcher == "POLYPHASE_RANK") {
    if (place.world > 1) place.address = variables.required("POLYPHASE_ADDRESS");
  } else if (place.launcher == "torchrun") {
    place.address = concat(variables.required("MASTER_ADDR"), ":", variables.number("MASTER_PORT", 1, 65535));
    place.derive_port = true;
  } else if (place.launcher == "Slurm") {
    const auto step = variables.text("SLURM_STEP_NODELIST");
    place.address = concat(first_host(step ? *step : variables.required("SLURM_JOB_NODELIST")), ":", kSlurmPort);
    place.derive_port = true;
  }
}

}  // namespace

Place find_place() {
  return find_place([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

Place find_place(const ReadVariable& read) {
  for (const Launcher& launcher : kLaunchers) {
    const Variables variables(read, launcher.name);
    if (!variables.text(launcher.rank)) continue;
    const bool is_slurm = std::string_view(launcher.name) == "Slurm";
    // A shell in an allocation has the variables of one task.
    if (is_slurm && variables.number_or(launcher.world, 1, 1, kMostRanks) == 1) continue;
    Place place;
    place.launcher = launcher.name;
    place.world = variables.number(launcher.world, 1, kMostRanks);
    place.rank = variables.number(launcher.rank, 0, place.world - 1);
    place.local_rank = variables.number_or(launcher.local_rank, place.rank, 0, place.world - 1);
    place.job = concat(variables.text(launcher.job).value_or(""), "/", variables.text(launcher.restart).value_or(""));
    find_meeting_point(place, variables);
    return place;
  }
  return {};
}

}  // namespace polyphase::distributed

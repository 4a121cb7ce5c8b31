#include "distributed/place.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "distributed/distributed_error.hpp"

using namespace polyphase;
using namespace polyphase::distributed;

namespace {

using Variables = std::map<std::string, std::string>;

Place place_of(const Variables& variables) {
  return find_place([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  });
}

const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29400"},
                          {"TORCHELASTIC_RUN_ID", "run"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}};

}  // namespace

TEST_CASE("place: without a launcher a process is alone") {
  const Place place = place_of({});
  CHECK(place.rank == 0);
  CHECK(place.world == 1);
  CHECK(place.launcher.empty());
}

TEST_CASE("place: torchrun, whose own port is not used") {
  const Place place = place_of(kTorchrun);
  CHECK(place.launcher == "torchrun");
  CHECK(place.rank == 3);
  CHECK(place.world == 4);
  CHECK(place.local_rank == 1);
  CHECK(place.address == "node1:29400");
  CHECK(place.derive_port);
  CHECK(place.job == "run/2");
}

TEST_CASE("place: MPI launchers meet through MPI") {
  const Place open =
      place_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  CHECK(open.launcher == "Open MPI");
  CHECK(open.rank == 1);
  CHECK(open.local_rank == 0);
  CHECK(open.address.empty());
  const Place mpich = place_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}});
  CHECK(mpich.launcher == "MPICH");
  CHECK(mpich.world == 2);
}

TEST_CASE("place: Slurm meets on the first host of its list") {
  const auto address = [](const std::string& list) {
    return place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", list}})
        .address;
  };
  CHECK(address("gpu01") == "gpu01:29500");
  CHECK(address("gpu01,gpu02") == "gpu01:29500");
  CHECK(address("gpu[03-04,07],cpu1") == "gpu03:29500");
  CHECK(address("gpu[03,07]") == "gpu03:29500");
  CHECK(address("rack[1-2]n5") == "rack1n5:29500");
  CHECK(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).launcher.empty());
}

TEST_CASE("place: the first launcher whose rank is set counts, and POLYPHASE_ADDRESS replaces its meeting point") {
  Variables variables = kTorchrun;
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  variables["POLYPHASE_ADDRESS"] = "/shared/meeting";
  CHECK(place_of(variables).launcher == "torchrun");
  CHECK(place_of(variables).address == "/shared/meeting");
  CHECK_FALSE(place_of(variables).derive_port);
  variables["POLYPHASE_RANK"] = "1";
  variables["POLYPHASE_WORLD"] = "2";
  CHECK(place_of(variables).launcher == "POLYPHASE_RANK");
  CHECK(place_of(variables).local_rank == 1);
}

TEST_CASE("place: a variable that is missing or does not fit is named") {
  const auto error_of = [](Variables variables) -> std::string {
    try {
      (void)place_of(variables);
    } catch (const DistributedError& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(error_of({{"RANK", "0"}}) == "distributed::init: torchrun sets this process' rank, but WORLD_SIZE is not set");
  CHECK(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "distributed::init: expected RANK to be a whole number from 0 to 1, got \"2\"");
  CHECK(error_of({{"RANK", "0"}, {"WORLD_SIZE", "two"}}) ==
        "distributed::init: expected WORLD_SIZE to be a whole number from 1 to 1048576, got \"two\"");
  CHECK(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}}) ==
        "distributed::init: expected MASTER_PORT to be a whole number from 1 to 65535, got \"0\"");
  CHECK(error_of({{"POLYPHASE_RANK", "0"}, {"POLYPHASE_WORLD", "2"}}) ==
        "distributed::init: POLYPHASE_RANK sets this process' rank, but POLYPHASE_ADDRESS is not set");
}

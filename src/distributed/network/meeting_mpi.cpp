#include "distributed/network/meeting_mpi.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "distributed/distributed_error.hpp"
#include "distributed/network/shared_library.hpp"

namespace polyphase::distributed {
namespace {

// Open MPI's handles are addresses of objects in the library; MPICH's, and Intel's, are integers of its ABI (mpich.org/abi).
constexpr std::intptr_t kMpichWorld = 0x44000000;
constexpr std::intptr_t kMpichByte = 0x4c00010d;

class Mpi {
 public:
  Mpi() : library_("POLYPHASE_MPI", {"libmpi.so.40", "libmpi.so.12", "libmpi.so"}, "MPI") {
    if (void* world = library_.find("ompi_mpi_comm_world")) {
      world_ = reinterpret_cast<std::intptr_t>(world);
      byte_ = reinterpret_cast<std::intptr_t>(library_.symbol("ompi_mpi_byte"));
    }
  }

  [[nodiscard]] bool is_initialized() const {
    int flag = 0;
    check("MPI_Initialized", library_.function<int(int*)>("MPI_Initialized")(&flag));
    return flag != 0;
  }
  void init() const { check("MPI_Init", library_.function<int(int*, char***)>("MPI_Init")(nullptr, nullptr)); }
  void finalize() const { check("MPI_Finalize", library_.function<int()>("MPI_Finalize")()); }
  [[nodiscard]] int query(const char* name) const {
    int value = 0;
    // A handle is an int in MPICH and a pointer in Open MPI: both are passed in one register.
    check(name, library_.function<int(std::intptr_t, int*)>(name)(world_, &value));
    return value;
  }
  void broadcast(void* data, int bytes) const {
    check("MPI_Bcast",
          library_.function<int(void*, int, std::intptr_t, int, std::intptr_t)>("MPI_Bcast")(data, bytes, byte_, 0, world_));
  }

 private:
  static void check(const char* call, int status) {
    require<DistributedError>(status == 0, "distributed::init: ", call, " failed with code ", status);
  }

  SharedLibrary library_;
  std::intptr_t world_ = kMpichWorld;
  std::intptr_t byte_ = kMpichByte;
};

}  // namespace

std::string broadcast_by_mpi(const std::string& text, int rank, int world) {
  const Mpi mpi;
  const bool is_ours = !mpi.is_initialized();
  if (is_ours) mpi.init();
  const int mpi_rank = mpi.query("MPI_Comm_rank");
  const int mpi_world = mpi.query("MPI_Comm_size");
  require<DistributedError>(mpi_rank == rank && mpi_world == world, "distributed::init: the launcher says rank ", rank, " of ",
                            world, ", MPI says rank ", mpi_rank, " of ", mpi_world,
                            "; is this the MPI library of another launcher? POLYPHASE_MPI names one");
  std::array<char, 1024> buffer{};
  require<DistributedError>(text.size() < buffer.size(), "distributed::init: an address of ", text.size(),
                            " bytes is too long");
  if (rank == 0) std::memcpy(buffer.data(), text.data(), text.size());
  mpi.broadcast(buffer.data(), static_cast<int>(buffer.size()));
  if (is_ours) mpi.finalize();  // a rank that ends later without it would be an error to mpirun
  return buffer.data();
}

}  // namespace polyphase::distributed

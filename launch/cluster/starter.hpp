// Starter: what a program that starts tasks on several machines (srun, mpirun, torchrun) has said
// in the environment, or the user by --node and --meet.
//
//     by hand    --node K/N --meet HOST:PORT
//     Slurm      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID; rank 0 is on the first host of
//                SLURM_STEP_NODELIST
//     Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK; PACELINE_MEET says where rank 0 is
//     torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR; MASTER_PORT is torchrun's own
//
// Rank 0 is the conductor, the others are agents. Pure: the variables are passed in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_place.hpp"

namespace paceline {

inline constexpr std::uint16_t kMeetPort = 47'600;  // where none is given

struct StarterPlace {
    std::string starter;  // "--node", "srun", "mpirun", "torchrun": for messages
    int rank = 0;
    int size = 1;
    remote::NodePlace meet;  // where rank 0 listens
};

using StarterVariables = std::map<std::string, std::string>;

/// The names that read_starter() knows; the environment has many more.
[[nodiscard]] bool is_starter_variable(std::string_view name);

/// Nothing: there is one machine. `node`, `meet`: of the command line, may be empty.
/// Errors: BadArgument naming variable and value: two starters at once, two tasks on a machine,
/// Open MPI without PACELINE_MEET, numbers that are none.
[[nodiscard]] Result<std::optional<StarterPlace>> read_starter(const std::string& node,
                                                               const std::string& meet,
                                                               const StarterVariables& variables);

/// The first host of a Slurm list: "n[001-003,7],gpu" -> "n001". Errors: BadArgument.
[[nodiscard]] Result<std::string> first_host(std::string_view list);

}  // namespace paceline

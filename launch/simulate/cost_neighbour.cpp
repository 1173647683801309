#include "launch/simulate/cost_neighbour.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/transport/owned_fd.hpp"
#include "launch/load/load_model.hpp"
#include "launch/simulate/cost_rows.hpp"
#include "model/cpu/cpu_backend.hpp"

namespace paceline {
namespace {

constexpr int kStartMillis = 60'000;
constexpr int kContext = 64;

/// The child's whole life. Its exit code is only seen if it fails before it computes.
[[noreturn]] void stream(const ModelFile& file, const ModelOptions& model, int core, int ready) {
    const pid_t parent = ::getppid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::array cores{core};
    if (const Status pinned = pin_this_thread(cores); !pinned)
        std::fprintf(stderr, "a neighbour runs on any core: %s\n", pinned.error().what.c_str());
    ThreadPlan plan;
    plan.cores = {core};
    CpuOptions options = cpu_options(model, plan, kContext + 1);
    options.rows_max = 1;
    Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file, options);
    if (!backend) ::_exit(1);
    CostRows rows{*backend.value()};
    const int layers = file.config().layers;
    (void)rows.layers_once(1, kContext, layers);
    if (::write(ready, "r", 1) != 1) ::_exit(1);
    // Where prctl() is denied it ends here when its parent has gone.
    while (::getppid() == parent) (void)rows.layers_once(1, kContext, layers);
    ::_exit(0);
}

}  // namespace

Result<CostNeighbour> CostNeighbour::start(const ModelFile& file,
                                           const ModelOptions& model,
                                           int core) {
    const auto failed = [core](const std::string& what) {
        return Error{Errc::System, fmt::format("a neighbour on core {} {}", core, what)};
    };
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0)
        return failed(std::string{"has no pipe: "} + std::strerror(errno));
    OwnedFd read_end;
    read_end.reset(ends[0]);
    OwnedFd write_end;
    write_end.reset(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0) return failed(std::string{"cannot be forked: "} + std::strerror(errno));
    if (pid == 0) stream(file, model, core, write_end.get());
    CostNeighbour neighbour{pid};
    write_end.reset();
    pollfd wait{read_end.get(), POLLIN, 0};
    char byte = 0;
    // The pipe also becomes readable, without a byte, when the child has ended.
    if (::poll(&wait, 1, kStartMillis) != 1 || ::read(read_end.get(), &byte, 1) != 1)
        return failed("did not begin to compute");
    return neighbour;
}

CostNeighbour::~CostNeighbour() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

}  // namespace paceline

// CostNeighbour: a child process that computes beside a measurement: it streams the same model's
// weights on cores of its own, one row after the other, until it is ended.
//
// Two stages of one machine slow each other through the memory they share; costs measured alone
// would be too low. The child ends with its parent. One thread; to be started while this
// process has no other threads, because it forks.
#pragma once

#include <sys/types.h>
#include <utility>

#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

class CostNeighbour {
public:
    /// Returns when it computes. Errors: System, if it cannot be started or does not get there.
    [[nodiscard]] static Result<CostNeighbour> start(const ModelFile& file,
                                                     const ModelOptions& model,
                                                     int core);
    CostNeighbour(CostNeighbour&& other) noexcept : pid_{std::exchange(other.pid_, 0)} {}
    CostNeighbour& operator=(CostNeighbour&&) = delete;
    CostNeighbour(const CostNeighbour&) = delete;
    CostNeighbour& operator=(const CostNeighbour&) = delete;
    ~CostNeighbour();  // kills and reaps it

    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    explicit CostNeighbour(pid_t pid) : pid_{pid} {}
    pid_t pid_;  // 0: moved from
};

}  // namespace paceline

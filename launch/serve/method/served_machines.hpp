// ServedMachines: the other machines of a server's pipeline.
//
//     open()   waits for them, as `paceline run` does
//     look()   ends the stages of a pipeline that could not continue, on all machines; one that was
//              given up because a machine was away for machine_wait_s is started again once all
//              machines are connected
//
// A pipeline that was given up for another reason stays so, as on one machine. Outlives the
// service.
// Threads: missing() from any, the rest from one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/meeting.hpp"
#include "launch/session/service.hpp"

namespace paceline::serve {

class ServedMachines {
public:
    using Clock = std::chrono::steady_clock;
    using Tell = std::function<void(const std::string& what)>;

    static constexpr std::chrono::milliseconds kLook{100};  // between two looks
    static constexpr std::chrono::seconds kAgain{5};  // after a start that failed, and for agents
                                                      // to connect anew

    /// `missing` is called while they are waited for. Errors: those of open_cluster().
    [[nodiscard]] static Result<std::unique_ptr<ServedMachines>> open(
        const StarterPlace& place,
        const MeetingOptions& options,
        const Environment& environment,
        const SupervisionConfig& supervision,
        RunLog& log,
        ConductorHub::OnMissing missing,
        Tell tell);

    ServedMachines(std::unique_ptr<Cluster> cluster, Tell tell)
        : cluster_{std::move(cluster)}, tell_{std::move(tell)} {}

    [[nodiscard]] Cluster& cluster() { return *cluster_; }
    [[nodiscard]] std::string missing() const { return cluster_->hub->missing(); }
    /// Blocks while a pipeline loads.
    void look(Service& service, const PipelineChange::Open& open);

private:
    [[nodiscard]] Status meet_again();

    std::unique_ptr<Cluster> cluster_;
    Tell tell_;
    bool lacked_ = false;      // a machine, at the last look
    bool has_failed_ = false;  // the service, at the last look
    bool restarts_ = false;    // it failed for lack of a machine
    Clock::time_point next_{};
};

}  // namespace paceline::serve

#include "launch/serve/method/served_machines.hpp"

#include <fmt/core.h>
#include <thread>
#include <utility>

namespace paceline::serve {
namespace {

constexpr std::chrono::milliseconds kMissingLook{10};

}  // namespace

Result<std::unique_ptr<ServedMachines>> ServedMachines::open(const StarterPlace& place,
                                                             const MeetingOptions& options,
                                                             const Environment& environment,
                                                             const SupervisionConfig& supervision,
                                                             RunLog& log,
                                                             ConductorHub::OnMissing missing,
                                                             Tell tell) {
    MeetingNews news;
    news.say = [&log](const std::string& sentence, bool is_news) {
        is_news ? log.news(sentence) : log.info(sentence);
    };
    news.missing = std::move(missing);
    Result<std::unique_ptr<Cluster>> cluster =
        open_cluster(place, options, environment, supervision, std::move(news));
    if (!cluster) return cluster.error();
    return std::make_unique<ServedMachines>(std::move(cluster).value(), std::move(tell));
}

/// So that no agent has anything of the pipeline before.
Status ServedMachines::meet_again() {
    cluster_->hub->renew();
    const Clock::time_point until = Clock::now() + kAgain;
    while (!missing().empty()) {
        if (Clock::now() >= until)
            return Error{Errc::PeerGone, "not connected again: " + missing()};
        std::this_thread::sleep_for(kMissingLook);
    }
    return {};
}

void ServedMachines::look(Service& service, const PipelineChange::Open& open) {
    const bool lacks = !missing().empty();
    const bool lacked = std::exchange(lacked_, lacks);
    const bool has_failed = service.snapshot().state == ServiceState::Failed;
    const bool had_failed = std::exchange(has_failed_, has_failed);
    if (has_failed && !had_failed) {
        // The machine may have come back between the end of the pipeline and this look.
        restarts_ = lacks || lacked;
        service.session().end();
    }
    if (!has_failed || !restarts_ || lacks || Clock::now() < next_) return;
    const ChangeResult result = service.restart([&]() -> Result<std::unique_ptr<PipelineSession>> {
        tell_("all machines are connected: the pipeline is started again");
        if (Status s = meet_again(); !s) return s.error();
        return open();
    });
    if (result.outcome == ChangeOutcome::Changed) tell_("the pipeline answers again");
    if (result.outcome != ChangeOutcome::Failed) return;
    next_ = Clock::now() + kAgain;
    tell_(fmt::format("it could not be started again, and is tried again in {} s: {}",
                      kAgain.count(), result.why.error().what));
}

}  // namespace paceline::serve

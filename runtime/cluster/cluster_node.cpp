#include "runtime/cluster/cluster_node.hpp"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include <boost/asio/post.hpp>

#include "ipc/base/check.hpp"
#include "runtime/cluster/bell_watch.hpp"
#include "runtime/cluster/remote_node.hpp"
#include "runtime/parent/local_node.hpp"

namespace paceline {
namespace {

/// Rings and boards are looked at as often even if no doorbell rings.
constexpr BellWatch::Micros kLookLimit{20'000};

class ClusterNode final : public NodeAgent {
public:
    ClusterNode(boost::asio::io_context& io, std::vector<NodeSlot*> slots, NodeEvents events)
        : io_{io}, slots_{std::move(slots)}, events_{std::move(events)} {}
    ~ClusterNode() override;

    [[nodiscard]] Status open(const std::vector<std::string>& names, bool catch_signals) {
        for (std::size_t i = 0; i < slots_.size(); ++i)
            remotes_.push_back(std::make_unique<RemoteNode>(*slots_[i], names[i], events_));
        Result<std::unique_ptr<NodeAgent>> local = make_local_node(events_, catch_signals);
        if (!local.ok()) return local.error();
        local_ = std::move(local).value();
        return {};
    }

    [[nodiscard]] Status start(Incarnation who,
                               const ProcessSpec& process,
                               const std::vector<std::string>& command) override {
        PACE_CHECK(process.node <= remotes_.size(), "a stage of a machine that the run has not");
        homes_[who.id] = process.node;
        return agent_of(who.id).start(who, process, command);
    }
    [[nodiscard]] Status send(Incarnation who,
                              const control::Message& message,
                              std::span<const int> files,
                              std::chrono::milliseconds limit,
                              Envelope envelope) override;
    void kill(Incarnation who) override { agent_of(who.id).kill(who); }
    void poll() override {
        local_->poll();
        for (const auto& remote : remotes_) remote->poll();
    }
    void wait(Deadline deadline) override {
        // Comes back every few milliseconds.
        local_->wait(deadline);
        for (const auto& remote : remotes_) remote->poll();
    }
    [[nodiscard]] Status wake_with(const MakeBell& bells) override {
        if (const Status wakes = local_->wake_with(bells); !wakes.ok()) return wakes;
        for (const auto& remote : remotes_) {
            if (const Status wakes = remote->wake_with(bells); !wakes.ok()) return wakes;
        }
        return {};
    }
    [[nodiscard]] std::string title(Incarnation who) const override {
        return agent_of(who.id).title(who);
    }
    [[nodiscard]] std::string last_words(Incarnation who) const override {
        return agent_of(who.id).last_words(who);
    }
    [[nodiscard]] pid_t pid(Incarnation who) const override { return agent_of(who.id).pid(who); }
    [[nodiscard]] bool judges_deadlines(StageId stage) const override {
        return agent_of(stage).judges_deadlines(stage);
    }
    void ask_figures() override {
        for (const auto& remote : remotes_) remote->ask_figures();
    }
    [[nodiscard]] bool has_figures() const override {
        return std::all_of(remotes_.begin(), remotes_.end(),
                           [](const auto& remote) { return remote->has_figures(); });
    }

private:
    [[nodiscard]] NodeAgent& agent_of(StageId stage) const {
        const auto home = homes_.find(stage);
        if (home == homes_.end() || home->second == 0) return *local_;
        return *remotes_[home->second - 1];
    }
    [[nodiscard]] Status watch_bell(int file);

    boost::asio::io_context& io_;
    std::vector<NodeSlot*> slots_;
    NodeEvents events_;
    std::map<StageId, std::uint32_t> homes_;
    std::unique_ptr<BellWatch> bell_;
    std::vector<std::unique_ptr<RemoteNode>> remotes_;
    std::unique_ptr<NodeAgent> local_;
};

ClusterNode::~ClusterNode() {
    remotes_.clear();
    local_.reset();
    // BellWatch ends on the thread of its calls; whoever destroys this is the supervisor's. What
    // was posted before is sent by then.
    std::promise<void> done;
    boost::asio::post(io_, [&] {
        bell_.reset();
        done.set_value();
    });
    done.get_future().wait();
}

Status ClusterNode::send(Incarnation who,
                         const control::Message& message,
                         std::span<const int> files,
                         std::chrono::milliseconds limit,
                         Envelope envelope) {
    NodeAgent& agent = agent_of(who.id);
    const auto* wire = std::get_if<control::Wire>(&message);
    const bool away = &agent != local_.get();
    if (wire != nullptr && away && !bell_ && wire->bell_file < files.size()) {
        if (const Status watched = watch_bell(files[wire->bell_file]); !watched.ok())
            return watched;
    }
    return agent.send(who, message, files, limit, envelope);
}

Status ClusterNode::watch_bell(int file) {
    Result<ShmRegion> region = ShmRegion::attach(file, sizeof(DoorbellHeader));
    if (!region.ok()) return region.error();
    Result<Doorbell> bell = Doorbell::attach(std::move(region).value());
    if (!bell.ok()) return bell.error();
    bell_ = std::make_unique<BellWatch>(io_, std::move(bell).value(), kLookLimit, [this] {
        for (NodeSlot* slot : slots_) slot->round();
    });
    return {};
}

}  // namespace

Result<std::unique_ptr<NodeAgent>> make_cluster_node(boost::asio::io_context& io,
                                                     std::vector<NodeSlot*> slots,
                                                     const std::vector<std::string>& names,
                                                     NodeEvents events,
                                                     bool catch_signals) {
    auto node = std::make_unique<ClusterNode>(io, std::move(slots), std::move(events));
    if (const Status opened = node->open(names, catch_signals); !opened.ok()) return opened.error();
    return std::unique_ptr<NodeAgent>{std::move(node)};
}

}  // namespace paceline

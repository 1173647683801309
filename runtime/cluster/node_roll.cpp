#include "runtime/cluster/node_roll.hpp"

#include <utility>

namespace paceline {

void NodeRoll::start(Incarnation who) {
    ids_.insert(who.id);
    stages_[who] = false;
    if (!is_connected()) unstarted_.push_back(who);
}

void NodeRoll::silence(Incarnation who) {
    const auto found = stages_.find(who);
    if (found != stages_.end()) found->second = true;
}

bool NodeRoll::accepts(Incarnation who) const {
    const auto found = stages_.find(who);
    return found != stages_.end() && !found->second;
}

void NodeRoll::link_lost(const std::string& why) {
    connected_.reset();
    why_ = why;
    for (auto& [who, silent] : stages_) {
        if (std::exchange(silent, true)) continue;
        news_.push_back(
            {News::What::Silent, who, "the connection to machine '" + name_ + "' is lost: " + why});
    }
}

void NodeRoll::lease_ended(const std::string& why) {
    unstarted_.clear();
    for (const auto& [who, silent] : std::exchange(stages_, {}))
        news_.push_back({News::What::Lost, who, about(why)});
}

void NodeRoll::link_back(Epoch node_epoch) {
    connected_ = node_epoch;
    for (const StageId id : ids_) news_.push_back({News::What::Back, {id, Epoch{}}, {}});
}

void NodeRoll::give_up_unstarted() {
    while (!unstarted_.empty()) {
        const Incarnation who = unstarted_.front();
        unstarted_.pop_front();
        if (stages_.erase(who) != 0) news_.push_back({News::What::Lost, who, about(why_)});
    }
}

std::optional<NodeRoll::News> NodeRoll::next() {
    if (news_.empty()) return std::nullopt;
    News news = std::move(news_.front());
    news_.pop_front();
    return news;
}

}  // namespace paceline

// NodeRoll: the stages of one other machine as the conductor counts them, and what follows for them
// when the machine is lost or back.
//
//   [connected] --- link_lost: Silent for each ---> [away] --- lease_ended: Lost for each
//        ^                                             |
//        +-------- link_back: Back for each id --------+
//
// A stage that is started while the machine is away counts as lost with it at the next
// give_up_unstarted(). Back names all that were ever started here; those that do not wait for a
// machine ignore it. Pure: what follows is taken with next(), in order. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ipc/base/ids.hpp"
#include "runtime/parent/node_agent.hpp"

namespace paceline {

class NodeRoll {
public:
    struct News {
        enum class What : std::uint8_t { Silent, Lost, Back };
        What what = What::Silent;
        Incarnation who{};  // Back: of its stage alone
        std::string why{};  // names the machine
    };

    /// `name`: of the machine. `connected`: the node epoch of the connection, if there is one.
    NodeRoll(std::string name, std::optional<Epoch> connected)
        : name_{std::move(name)}, connected_{connected} {}

    void start(Incarnation who);
    /// The machine has said that it has ended.
    void ended(Incarnation who) { stages_.erase(who); }
    void silence(Incarnation who);

    [[nodiscard]] bool knows(Incarnation who) const { return stages_.contains(who); }
    /// Whether its reports count.
    [[nodiscard]] bool accepts(Incarnation who) const;
    /// Whether it can be told something.
    [[nodiscard]] bool reaches(Incarnation who) const { return is_connected() && accepts(who); }
    [[nodiscard]] bool is_connected() const { return connected_.has_value(); }

    void link_lost(const std::string& why);
    void lease_ended(const std::string& why);
    void link_back(Epoch node_epoch);
    /// Those that were to be started while the machine was away.
    void give_up_unstarted();

    [[nodiscard]] std::optional<News> next();

private:
    [[nodiscard]] std::string about(const std::string& why) const {
        return "machine '" + name_ + "': " + why;
    }

    std::string name_;
    std::optional<Epoch> connected_;
    std::string why_ = "it is not connected";
    std::map<Incarnation, bool> stages_;  // whether it is silent
    std::set<StageId> ids_;               // of all that were started here
    std::deque<Incarnation> unstarted_;
    std::deque<News> news_;
};

}  // namespace paceline

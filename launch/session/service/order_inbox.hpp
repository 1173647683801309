// OrderInbox: orders that clients have given and that the loop has not seen, in their order.
//
// Bounded by OrderPlaces. Threads: all members from any.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "launch/session/answer_stream.hpp"
#include "launch/session/service/service_order.hpp"

namespace paceline {

struct TakenOrder {
    AnswerId id;
    ServiceOrder order;
    std::shared_ptr<AnswerStream> stream;
    // Its grammar is being compiled, and it is in no line; gone with the order if that ends.
    std::shared_ptr<const char> compiling = {};
};

class OrderInbox {
public:
    /// Whether it is the first one: the loop has to be told to look.
    [[nodiscard]] bool add(TakenOrder order) {
        const std::lock_guard lock{mutex_};
        orders_.push_back(std::move(order));
        return orders_.size() == 1;
    }
    [[nodiscard]] std::vector<TakenOrder> take_all() {
        const std::lock_guard lock{mutex_};
        return std::exchange(orders_, {});
    }
    /// An order that is still here; nothing: the loop has seen it.
    [[nodiscard]] std::optional<TakenOrder> take_back(AnswerId id) {
        const std::lock_guard lock{mutex_};
        const auto at = std::find_if(orders_.begin(), orders_.end(),
                                     [id](const TakenOrder& order) { return order.id == id; });
        if (at == orders_.end()) return std::nullopt;
        TakenOrder order = std::move(*at);
        orders_.erase(at);
        return order;
    }

private:
    std::mutex mutex_;
    std::vector<TakenOrder> orders_;
};

}  // namespace paceline

// OrderInbox: orders that clients have given and that the loop has not seen, in their order.
//
// Bounded by OrderPlaces. Threads: all members from any.
#pragma once

#include <memory>
#include <mutex>
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

private:
    std::mutex mutex_;
    std::vector<TakenOrder> orders_;
};

}  // namespace paceline

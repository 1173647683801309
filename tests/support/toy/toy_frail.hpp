// FrailActor: a stage's actor that dies of some requests, whatever it holds of others.
//
// Borrows the actor that does the work. Threads: its loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <variant>

#include "actors/decoding/begin_payload.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline::testing {

class FrailActor final : public Actor {
public:
    /// `strike` is called at the Begin of each request that is `deadly`.
    FrailActor(Actor& inner,
               std::function<bool(const Request&)> deadly,
               std::function<void()> strike)
        : inner_{inner}, deadly_{std::move(deadly)}, strike_{std::move(strike)} {}

    void on_start(StageContext& context) override { inner_.on_start(context); }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        inner_.handle(from, kind, bytes);
    }
    void on_control(StageId from, const control::Message& message) override {
        const auto* begin = std::get_if<control::Begin>(&message);
        if (begin != nullptr && deadly_(decode_begin(begin->payload).value())) strike_();
        inner_.on_control(from, message);
    }
    void on_room(StageId to) override { inner_.on_room(to); }
    void on_peer(StageId peer, PeerChange change) override { inner_.on_peer(peer, change); }

private:
    Actor& inner_;
    std::function<bool(const Request&)> deadly_;
    std::function<void()> strike_;
};

}  // namespace paceline::testing

// Pinger: a conductor's actor with relays 1 and 2 behind it, whose messages show that the channels
// work.
#pragma once

#include <span>
#include <variant>

#include <doctest/doctest.h>

#include "tests/unit/runtime/toy_actors.hpp"

namespace paceline::test {

/// Keeps a number on its way through the relays, and begins again when one was lost.
struct Pinger : Actor {
    explicit Pinger(int wanted) : losses_wanted{wanted} {}
    void on_start(StageContext& c) override {
        context = &c;
        ping();
    }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        CHECK(as<msg::Proposal>(bytes).root_position == 1002);
        ++pongs;
        const bool done = joins == losses_wanted && begins_requested >= begins_expected;
        if (done && pongs_since_join++ == 20) return context->stop();
        ping();
    }
    void on_peer(StageId, PeerChange change) override {
        if (change == PeerChange::Lost) {
            ++losses;
            return;
        }
        ++joins;
        if (joins == losses) ping();
    }
    void on_control(StageId from, const control::Message& message) override {
        begins_requested +=
            from == StageId{2} && std::holds_alternative<control::BeginWanted>(message) ? 1 : 0;
    }
    void ping() { CHECK(send(*context, StageId{1}, msg::Proposal{}) == Push::Ok); }

    StageContext* context = nullptr;
    int losses_wanted;
    int losses = 0;
    int joins = 0;
    int pongs = 0;
    int pongs_since_join = 0;
    int begins_requested = 0;  // by the second relay
    int begins_expected = 0;
};

}  // namespace paceline::test

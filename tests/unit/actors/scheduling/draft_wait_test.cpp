// DraftWait alone: the times and messages come from the test.
#include "actors/segment/scheduling/draft_wait.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// A request whose text is t0 t1: the root is at position 1.
RequestState waiting_request() {
    Request request;
    request.text = {3, 4};
    request.max_tokens = 20;
    request.context = 40;
    return RequestState{RequestId{1}, Attempt{1}, BeginPayload{request}, TreeRole::Names};
}

msg::Proposal answer_to(Position root, msg::ProposalState state, std::uint32_t count) {
    msg::Proposal made{};
    made.root_position = root;
    made.state = state;
    made.count = count;
    return made;
}

constexpr auto kComplete = msg::ProposalState::Complete;

}  // namespace

TEST_CASE("sequential: a batch waits until the draft is complete for the root, or time is over") {
    const RequestState state = waiting_request();
    const DraftWaitRule rule{.start = StartRule::Sequential, .wait = Micros{100}};
    DraftWait wait{rule, state, Micros{1000}};
    CHECK(wait.waits());
    CHECK_FALSE(wait.may_start(Micros{1099}));
    CHECK(wait.may_start(Micros{1100}));
    CHECK(wait.due(true) == Micros{1100});
    CHECK(wait.due(false) == std::nullopt);  // behind other batches nothing is waited for
    wait.prefill_sent(Micros{1050});
    CHECK(wait.due(true) == Micros{1150});
    wait.receive(answer_to(0, kComplete, 1), Micros{1060});  // of an earlier root
    CHECK(wait.waits());
    wait.receive(answer_to(1, msg::ProposalState::Growing, 1), Micros{1070});
    CHECK(wait.waits());
    wait.receive(answer_to(1, kComplete, 1), Micros{1080});
    CHECK_FALSE(wait.waits());
    CHECK_FALSE(wait.verify_sent(true, Micros{1080}));
}

TEST_CASE("a draft that misses several waits in a row is not waited for until it is in time") {
    const RequestState state = waiting_request();
    const DraftWaitRule rule{.start = StartRule::Sequential, .wait = Micros{100}};
    DraftWait wait{rule, state, Micros{0}};
    for (std::uint32_t i = 0; i < DraftWait::kSilentWaitsMax; ++i) {
        CHECK(wait.waits());
        CHECK_FALSE(wait.verify_sent(false, Micros{100}));  // that one did not wait
        CHECK(wait.verify_sent(true, Micros{100}));
    }
    CHECK_FALSE(wait.waits());
    CHECK_FALSE(wait.verify_sent(true, Micros{100}));
    wait.decided(Micros{200});
    wait.receive(answer_to(1, kComplete, 1), Micros{301});  // late
    CHECK_FALSE(wait.waits());
    DraftWait lost{rule, state, Micros{0}};
    for (std::uint32_t i = 0; i < DraftWait::kSilentWaitsMax; ++i)
        CHECK(lost.verify_sent(true, Micros{100}));
    CHECK_FALSE(lost.waits());
    lost.draft_changed();  // another one has joined
    CHECK(lost.waits());
}

TEST_CASE("a draft that was told to rest is not waited for, nor in a turn that lets others go on") {
    const RequestState state = waiting_request();
    SpeculationAccount account{{.controller = Controller::On}};
    const DraftWaitRule rule{
        .start = StartRule::Sequential, .wait = Micros{100}, .account = &account};
    DraftWait wait{rule, state, Micros{0}};
    Micros now{0};
    const auto turn = [&](BatchId batch) {
        const std::vector parts{SpeculationAccount::Part{RequestId{1}, batch, 0}};
        account.formed(parts, {.rows = 1, .requests = 1}, {}, 1, true, now);
        now += Micros{1000};
        account.verified(RequestId{1}, batch, 1, {}, now);
    };
    std::uint32_t next = 0;
    while (account.turns().allowed_next() == 0) turn(BatchId{next++});
    // The next turn speculates, and the draft has not been told so yet.
    turn(BatchId{next++});
    REQUIRE(account.allowed() > 0);
    CHECK(wait.waits());
    account.forget_told(SpeculationAccount::Group::Drafts);
    while (account.turns().allowed_next() > 0) turn(BatchId{next++});
    const auto price = account.take_price(SpeculationAccount::Group::Drafts);
    REQUIRE(price);
    REQUIRE(is_off(price->mode));
    CHECK_FALSE(wait.waits());
    wait.decided(now);  // a root of which the draft says nothing, also when it is on again
    account.forget_told(SpeculationAccount::Group::Drafts);
    CHECK_FALSE(wait.waits());
    wait.decided(now);
    while (account.allowed() == 0) turn(BatchId{next++});
    CHECK(wait.waits());
}

TEST_CASE("a draft that is lost is not waited for") {
    const RequestState state = waiting_request();
    DraftWaitRule rule{.start = StartRule::Lockstep, .wait = Micros{100}};
    DraftWait wait{rule, state, Micros{0}};
    (void)wait.verify_sent(true, Micros{0});
    CHECK_FALSE(wait.halfway(Micros{50}));
    rule.draft_present = false;
    wait.draft_changed();
    CHECK_FALSE(wait.waits());
    CHECK(wait.halfway(Micros{50}));
}

TEST_CASE("lockstep: a batch is held until the draft is halfway in its round, or time is over") {
    const RequestState state = waiting_request();
    const DraftWaitRule rule{.start = StartRule::Lockstep, .wait = Micros{100}};
    DraftWait wait{rule, state, Micros{0}};
    CHECK(wait.in_first_round());
    CHECK_FALSE(wait.waits());  // the first batch starts the first round
    CHECK_FALSE(wait.verify_sent(true, Micros{10}));
    CHECK_FALSE(wait.in_first_round());
    CHECK(wait.waits());
    CHECK_FALSE(wait.halfway(Micros{109}));
    CHECK(wait.due(false) == Micros{110});
    CHECK(wait.due(true) == Micros{100});
    SUBCASE("it is halfway") {
        wait.receive(answer_to(1, msg::ProposalState::Halfway, 1), Micros{50});
        CHECK(wait.halfway(Micros{50}));
        CHECK(wait.waits());  // the next batch needs the whole round
    }
    SUBCASE("the time is over") {
        wait.expire(Micros{110});
        CHECK(wait.halfway(Micros{50}));
    }
    SUBCASE("a verdict comes first") {
        wait.decided(Micros{60});
        CHECK(wait.halfway(Micros{60}));
        CHECK(wait.due(true) == Micros{160});
    }
}

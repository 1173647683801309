#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/attempt_filter.hpp"
#include "actors/protocol/message_checks.hpp"
#include "actors/segment/batch_scheduler.hpp"
#include "ipc/base/limits.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr MessageLimits kLimits{.vocab_size = 100, .kv_slots = 64, .context = 64};

template <class M>
void refused(const M& message, const std::string& says) {
    const Status status = check_message(message, kLimits);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Errc::Protocol);
    CHECK(status.error().what.find(says) != std::string::npos);
}

/// Two verify rows of request 1, then three prefill rows of request 2.
msg::Batch good_batch() {
    msg::Batch batch{};
    batch.parts = {{.request = RequestId{1},
                    .attempt = Attempt{1},
                    .batch = BatchId{0},
                    .kind = msg::BatchKind::Verify,
                    .base = 10,
                    .rows = 2,
                    .hold = 1},
                   {.request = RequestId{2},
                    .attempt = Attempt{1},
                    .batch = BatchId{0},
                    .kind = msg::BatchKind::Prefill,
                    .base = 0,
                    .rows = 3,
                    .hold = 0}};
    batch.rows.resize(5);
    batch.tensor_rows = 6;
    batch.rows[0] = {NodeId{1}, msg::kNoParent, 5, 10, 10};
    batch.rows[1] = {NodeId{2}, 1, 6, 11, 11};
    return batch;
}

msg::Route route(std::uint64_t request, std::uint32_t attempt, std::uint32_t epoch) {
    return {.request = RequestId{request}, .attempt = Attempt{attempt}, .epoch = Epoch{epoch}};
}

}  // namespace

TEST_CASE("a batch with a count, token, position or slot out of range is refused by field") {
    CHECK(check_message(good_batch(), kLimits));
    msg::Batch batch = good_batch();
    batch.rows.resize(kBatchRowsMax + 1);
    refused(batch, "row_count = 513");
    batch = good_batch();
    batch.rows.clear();
    refused(batch, "row_count = 0");
    batch = good_batch();
    batch.rows[1].token = 100;
    refused(batch, "row 1 has token = 100");
    batch = good_batch();
    batch.rows[0].position = -1;
    refused(batch, "row 0 has position = -1");
    batch = good_batch();
    batch.rows[0].slot = 64;
    refused(batch, "row 0 has slot = 64");
    batch = good_batch();
    batch.rows[4].tensor_row = 6;
    refused(batch, "row 4 has tensor_row = 6");
    batch.rows[4].tensor_row = 5;
    CHECK(check_message(batch, kLimits));
}

TEST_CASE("a batch whose tensor has fewer rows than the batch, or too many, is refused by field") {
    msg::Batch batch = good_batch();
    batch.tensor_rows = 4;
    refused(batch, "tensor_rows = 4");
    batch.tensor_rows = kBatchRowsMax + 1;
    refused(batch, "tensor_rows = 513");
}

TEST_CASE("a batch whose parts do not make up its rows is refused by field") {
    const auto refused_with = [](auto change, const std::string& says) {
        msg::Batch batch = good_batch();
        change(batch);
        refused(batch, says);
    };
    using Batch = msg::Batch;
    refused_with([](Batch& batch) { batch.parts.clear(); }, "part_count = 0");
    refused_with([](Batch& batch) { batch.parts.resize(kBatchPartsMax + 1); }, "part_count = 65");
    refused_with([](Batch& batch) { batch.parts[0].kind = static_cast<msg::BatchKind>(9); },
                 "part 0 has kind = 9");
    refused_with([](Batch& batch) { batch.parts[1].base = 64; }, "part 1 has base = 64");
    refused_with([](Batch& batch) { batch.parts[1].rows = 0; }, "part 1 has rows = 0");
    refused_with([](Batch& batch) { batch.parts[1].rows = 4; }, "part 1 has rows = 4");
    refused_with([](Batch& batch) { batch.parts[0].rows = 0xffffffffU; }, "part 0 has rows");
    refused_with([](Batch& batch) { batch.parts[1].rows = 2; },
                 "row_count = 5, but its parts have 4");
    refused_with([](Batch& batch) { batch.parts[1].hold = 2; }, "part 1 has hold = 2");
    refused_with([](Batch& batch) { batch.parts[1].request = RequestId{1}; },
                 "part 1 has request = 1, which part 0 has already");
}

TEST_CASE("a batch has as many rows as its segments agreed on, and few verify rows among them") {
    msg::Batch batch = good_batch();
    batch.parts[1].rows = kBatchRowsMax - 2;
    batch.rows.resize(kBatchRowsMax);
    batch.tensor_rows = kBatchRowsMax;
    CHECK(check_message(batch, kLimits));
    MessageLimits shorter = kLimits;
    shorter.batch_rows = 256;  // what the memory of this segment has room for
    const Status status = check_message(batch, shorter);
    REQUIRE_FALSE(status);
    CHECK(status.error().what.find("row_count = 512") != std::string::npos);
    batch.parts[1].rows = kBatchRowsMax - kVerifyRowsMax;
    batch.parts[0].rows = kVerifyRowsMax;
    CHECK(check_message(batch, kLimits));
    batch.parts[1].rows -= 1;
    batch.parts[0].rows += 1;
    refused(batch, "verify rows = 65");
}

TEST_CASE("a proposal or verdict with a count or token out of range is refused by field") {
    msg::Proposal proposal{};
    proposal.count = kProposalNodesMax + 1;
    refused(proposal, "count = 193");
    proposal.count = 2;
    proposal.nodes[0] = {5, msg::kBelowRoot, msg::Origin::Exit, 0, -0.5F};
    proposal.nodes[1] = {-5, 0, msg::Origin::Heads, 0, -0.5F};
    refused(proposal, "node 1 has token = -5");
    proposal.nodes[1].token = 5;
    CHECK(check_message(proposal, kLimits));
    for (const int parent : {-2, 1, 2, 191}) {  // itself, a later one, none
        proposal.nodes[1].parent = static_cast<std::int16_t>(parent);
        refused(proposal, "node 1 has parent = " + std::to_string(parent));
    }
    proposal.nodes[1].parent = 0;
    proposal.nodes[1].origin = static_cast<msg::Origin>(msg::kOrigins);
    refused(proposal, "node 1 has origin = 6");
    proposal.nodes[1].origin = msg::Origin::Trunk;
    proposal.nodes[1].log_prob = std::numeric_limits<float>::quiet_NaN();
    refused(proposal, "node 1 has log_prob = nan");
    proposal.nodes[1].log_prob = -std::numeric_limits<float>::infinity();  // is clamped
    CHECK(check_message(proposal, kLimits));
    proposal.state = static_cast<msg::ProposalState>(3);
    refused(proposal, "state = 3");
    proposal.state = msg::ProposalState::Complete;
    proposal.root_token = 100;
    refused(proposal, "root_token = 100");
    msg::Verdict verdict{};
    refused(verdict, "count = 0");
    verdict.count = kGammaMax + 2;
    refused(verdict, "count = 34");
    verdict.count = 1;
    verdict.finish = FinishReason::StopString;  // nothing that a target can know
    refused(verdict, "finish = 6");
    verdict.finish = FinishReason::None;
    verdict.batch_rows = kVerifyRowsMax + 1;
    refused(verdict, "batch_rows = 65");
    verdict.batch_rows = 4;
    verdict.depth = 3;
    CHECK(check_message(verdict, kLimits));
    verdict.depth = 4;
    refused(verdict, "depth = 4");
    verdict.batch_rows = kVerifyRowsMax;
    verdict.depth = kGammaMax + 1;
    refused(verdict, "depth = 33");
}

TEST_CASE("scores with a count, rank, token or probability out of range are refused by field") {
    msg::Scores scores{};
    scores.tokens = 3;
    scores.top = 20;
    CHECK(check_message(scores, kLimits));
    scores.tokens = 4;  // 84 entries
    refused(scores, "tokens = 4");
    scores.tokens = 0;
    refused(scores, "tokens = 0");
    scores.tokens = 1;
    scores.top = 21;
    refused(scores, "top = 21");
    scores.top = 1;
    scores.first = -1;
    refused(scores, "first = -1");
    scores.first = 7;
    scores.entries[1].value = 100;
    refused(scores, "value = 100");
    scores.entries[1].value = 99;
    scores.entries[0].log_prob = 0.5F;
    refused(scores, "log_prob = 0.5");
    scores.entries[0].log_prob = std::numeric_limits<float>::quiet_NaN();
    refused(scores, "log_prob = nan");
    scores.entries[0].log_prob = -std::numeric_limits<float>::infinity();
    CHECK(check_message(scores, kLimits));
}

TEST_CASE("own tokens with a count, name or token out of range are refused by field") {
    msg::OwnTokens own{};
    own.count = 2;
    own.tokens[0] = {.node = 1, .token = 99};
    own.tokens[1] = {.node = 255, .token = 0};
    CHECK(check_message(own, kLimits));
    own.tokens[1].node = 256;
    refused(own, "node = 256");
    own.tokens[1].node = 0;
    refused(own, "node = 0");
    own.tokens[1] = {.node = 7, .token = 100};
    refused(own, "token = 100");
    own.count = 0;
    refused(own, "count = 0");
    own.count = msg::kOwnTokensMax + 1;
    refused(own, "count = 65");
    own.count = 1;
    own.root_token = -1;
    refused(own, "root_token = -1");
    own.root_token = 0;
    own.root_position = -1;
    refused(own, "root_position = -1");
}

TEST_CASE("a tensor note with a field out of range is refused by field, one that fits is not") {
    const TensorLimits limits{.layers = 4, .context = 64, .slot_bytes = 1024};
    const msg::TensorNote good{.route = route(1, 1, 1),
                               .role = msg::TensorRole::Tap,
                               .type = msg::TensorType::F16,
                               .layer = 3,
                               .first_position = 56,
                               .rows = 8,
                               .row_elements = 64,
                               .tensor = 0,
                               .tensor_generation = 1};
    CHECK(check_message(good, limits));  // to the last layer, position and byte
    const auto refused_with = [&](auto change, const std::string& says) {
        msg::TensorNote note = good;
        change(note);
        const Status status = check_message(note, limits);
        REQUIRE_FALSE(status);
        CHECK(status.error().code == Errc::Protocol);
        CHECK_MESSAGE(status.error().what.find(says) != std::string::npos, status.error().what);
    };
    using Note = msg::TensorNote;
    refused_with([](Note& note) { note.role = static_cast<msg::TensorRole>(5); }, "role = 5");
    refused_with([](Note& note) { note.type = static_cast<msg::TensorType>(4); }, "type = 4");
    refused_with([](Note& note) { note.layer = 4; }, "layer = 4");
    refused_with([](Note& note) { note.first_position = -1; }, "first_position = -1");
    refused_with([](Note& note) { note.first_position = 64; }, "first_position = 64");
    refused_with([](Note& note) { note.rows = 0; }, "rows = 0");
    refused_with([](Note& note) { note.rows = 9; }, "rows = 9");
    refused_with([](Note& note) { note.row_elements = 0; }, "row_elements = 0");
    refused_with([](Note& note) { note.row_elements = 65; }, "more than the 1024 bytes");
    refused_with([](Note& note) { note.type = msg::TensorType::F32; }, "more than the 1024 bytes");
}

TEST_CASE("the bytes of a tensor are counted without wrapping") {
    msg::TensorNote note{};
    note.rows = 3;
    note.row_elements = 5;
    note.type = msg::TensorType::F32;
    CHECK(msg::tensor_bytes(note) == 60U);
    note.type = msg::TensorType::I8;
    CHECK(msg::tensor_bytes(note) == 15U);
    note.type = static_cast<msg::TensorType>(77);
    CHECK_FALSE(msg::tensor_bytes(note));
    note.rows = 1U << 31;
    note.row_elements = 1U << 31;
    note.type = msg::TensorType::F16;  // 2^63
    CHECK(msg::tensor_bytes(note) == std::uint64_t{1} << 63U);
    note.type = msg::TensorType::F32;  // 2^64
    CHECK_FALSE(msg::tensor_bytes(note));
}

TEST_CASE("a message of the wrong size is refused") {
    const std::vector<std::byte> bytes(sizeof(msg::Proposal) - 1);
    const auto decoded = decode_message<msg::Proposal>(bytes);
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error().code == Errc::Protocol);
}

TEST_CASE("the gate tells stale from current from early, and gives early ones back in order") {
    AttemptFilter gate;
    const StageId peer{5};
    const std::vector<std::byte> first{std::byte{1}};
    const std::vector<std::byte> second{std::byte{2}};
    gate.begun(RequestId{3}, Attempt{2});
    CHECK(gate.admit(peer, 1, route(3, 2, 1), first).value() == Age::Current);
    CHECK(gate.admit(peer, 1, route(3, 1, 1), first).value() == Age::Stale);
    // An older id may still begin here: a further turn, at a stage that was started again.
    CHECK(gate.admit(peer, 1, route(2, 1, 1), first).value() == Age::Early);
    CHECK(gate.admit(peer, 1, route(3, 3, 1), first).value() == Age::Early);
    CHECK(gate.admit(peer, 1, route(3, 3, 1), second).value() == Age::Early);
    CHECK(gate.admit(peer, 1, route(4, 1, 1), first).value() == Age::Early);
    CHECK(gate.take_due().empty());
    gate.begun(RequestId{3}, Attempt{3});
    const auto due = gate.take_due();
    REQUIRE(due.size() == 2);
    CHECK(due[0].bytes == first);
    CHECK(due[1].bytes == second);
    CHECK(gate.admit(peer, 1, route(3, 3, 1), first).value() == Age::Current);
}

TEST_CASE("the gate forgets requests that are over, the longest over first, and none that runs") {
    AttemptFilter gate;
    const RequestId runs{1};
    const RequestId kept{2};
    gate.begun(runs, Attempt{3});
    gate.begun(kept, Attempt{1});
    gate.ended(kept);
    gate.begun(kept, Attempt{2});  // its next turn
    gate.ended(kept);
    for (std::uint64_t id = 10; id < 10 + AttemptFilter::kOverMax - 1; ++id) {
        gate.begun(RequestId{id}, Attempt{1});
        gate.ended(RequestId{id});
        gate.ended(RequestId{id});  // a Stop follows the verdict that ended it
    }
    CHECK(gate.age(runs, Attempt{3}) == Age::Current);
    CHECK(gate.age(kept, Attempt{1}) == Age::Stale);
    CHECK(gate.age(RequestId{10}, Attempt{1}) == Age::Current);
    gate.begun(RequestId{5}, Attempt{1});
    gate.all_ended();  // with those that ran
    CHECK(gate.age(kept, Attempt{1}) == Age::Early);
    CHECK(gate.age(RequestId{10}, Attempt{1}) == Age::Early);
    CHECK(gate.age(runs, Attempt{2}) == Age::Stale);
    CHECK(gate.is_news(kept, Attempt{3}));
}

TEST_CASE("a Begin that is to come once more is news, and what follows it is early until then") {
    AttemptFilter gate{AttemptFilter::Overflow::DropOldest};
    gate.begun(RequestId{1}, Attempt{2});
    gate.await_again(RequestId{1});
    CHECK(gate.is_news(RequestId{1}, Attempt{2}));
    CHECK(gate.admit(StageId{5}, 1, route(1, 2, 1), {}).value() == Age::Early);
    CHECK(gate.admit(StageId{5}, 1, route(1, 1, 1), {}).value() != Age::Early);
    gate.begun(RequestId{1}, Attempt{2});
    CHECK(gate.take_due().size() == 1);
    gate.ended(RequestId{1});
    gate.await_again(RequestId{1});  // too late
    CHECK_FALSE(gate.is_news(RequestId{1}, Attempt{2}));
}

TEST_CASE("what a lost peer sent early is forgotten, what others sent is not") {
    AttemptFilter gate;
    const std::vector<std::byte> kept{std::byte{7}};
    CHECK(gate.admit(StageId{5}, 1, route(1, 1, 1), {}).value() == Age::Early);
    CHECK(gate.admit(StageId{6}, 1, route(1, 1, 1), kept).value() == Age::Early);
    gate.forget(StageId{5});
    gate.begun(RequestId{1}, Attempt{1});
    const auto due = gate.take_due();
    REQUIRE(due.size() == 1);
    CHECK(due[0].bytes == kept);
}

TEST_CASE("a peer that floods the gate with early messages is refused") {
    AttemptFilter gate;
    for (std::size_t i = 0; i < AttemptFilter::kHeldMax; ++i) {
        REQUIRE(gate.admit(StageId{5}, 1, route(9, 1, 1), {}));
    }
    const auto flooded = gate.admit(StageId{5}, 1, route(9, 1, 1), {});
    REQUIRE_FALSE(flooded);
    CHECK(flooded.error().code == Errc::Protocol);
}

TEST_CASE("a draft's gate lets the oldest early messages go instead") {
    AttemptFilter gate{AttemptFilter::Overflow::DropOldest};
    for (std::uint32_t i = 0; i <= AttemptFilter::kHeldMax; ++i) {
        const msg::Route route{RequestId{1}, Attempt{1}, Epoch{1}};
        const auto bytes = std::as_bytes(std::span{&i, 1});
        CHECK(gate.admit(StageId{1}, 3, route, bytes).value() == Age::Early);
    }
    gate.begun(RequestId{1}, Attempt{1});
    const std::vector<AttemptFilter::Held> due = gate.take_due();
    REQUIRE(due.size() == AttemptFilter::kHeldMax);
    CHECK(due.front().bytes.front() == std::byte{1});  // number 0 is gone
}

TEST_CASE("hints of all kinds that a draft gets leave its verdicts their room") {
    AttemptFilter gate{AttemptFilter::Overflow::DropOldest};
    for (std::uint32_t i = 0; i < 3 * AttemptFilter::kHeldMax; ++i) {
        for (const std::uint16_t kind : std::array<std::uint16_t, 3>{1, 7, 10})
            CHECK(gate.admit_hint(StageId{5}, kind, route(1 + i, 1, 1), {}) == Age::Early);
    }
    const std::size_t room = AttemptFilter::kHeldMax - 3 * AttemptFilter::kHintsMax;
    CHECK(room >= AttemptFilter::kHintsMax);
    for (std::size_t i = 0; i < room; ++i)
        CHECK(gate.admit(StageId{1}, 3, route(1, 1, 1), {}).value() == Age::Early);
    gate.begun(RequestId{1}, Attempt{1});
    CHECK(gate.take_due().size() == room);
}

TEST_CASE("of what may be lost the gate keeps the newest, and room for what may not") {
    AttemptFilter gate;
    for (std::uint32_t i = 0; i < 3 * AttemptFilter::kHeldMax; ++i) {
        const auto bytes = std::as_bytes(std::span{&i, 1});
        CHECK(gate.admit_hint(StageId{5}, 1, route(1 + i % 100, 1, 1), bytes) == Age::Early);
    }
    for (std::size_t i = 0; i < AttemptFilter::kHeldMax - AttemptFilter::kHintsMax; ++i) {
        REQUIRE(gate.admit(StageId{0}, 4, route(1, 1, 1), {}));
    }
    for (std::uint32_t i = 0; i < 100; ++i) gate.begun(RequestId{1 + i}, Attempt{1});
    std::vector<std::uint32_t> hints;
    for (const AttemptFilter::Held& held : gate.take_due()) {
        if (held.kind != 1) continue;
        std::memcpy(&hints.emplace_back(), held.bytes.data(), sizeof(std::uint32_t));
    }
    REQUIRE(hints.size() == AttemptFilter::kHintsMax);
    for (std::uint32_t i = 0; i < hints.size(); ++i) {
        CHECK(hints[i] == 3 * AttemptFilter::kHeldMax - AttemptFilter::kHintsMax + i);
    }
    CHECK(gate.admit_hint(StageId{5}, 1, route(1, 1, 1), {}) == Age::Current);
    CHECK(gate.admit_hint(StageId{5}, 1, route(1, 0, 1), {}) == Age::Stale);
}

TEST_CASE("dispatch options out of range are refused by name") {
    CHECK(validate(DispatchOptions{}));
    CHECK_FALSE(validate(DispatchOptions{.rows_max = 0}));
    CHECK_FALSE(validate(DispatchOptions{.rows_max = kVerifyRowsMax + 1}));
    CHECK_FALSE(validate(DispatchOptions{.prefill_rows = 0}));
    CHECK_FALSE(validate(DispatchOptions{.prefill_rows = kBatchRowsMax + 1}));
    CHECK_FALSE(validate(DispatchOptions{.requests_max = 0}));
    CHECK_FALSE(validate(DispatchOptions{.requests_max = kBatchPartsMax + 1}));
    CHECK_FALSE(validate(DispatchOptions{.verify_reach_min = -0.1F}));
    CHECK_FALSE(validate(DispatchOptions{.verify_reach_min = std::nanf("")}));
    CHECK(
        validate(DispatchOptions{.batches_in_flight_max = kSegmentsMax, .verify_reach_min = 1.0F}));
    const Status batches = validate(DispatchOptions{.batches_in_flight_max = 0});
    REQUIRE_FALSE(batches);
    CHECK(batches.error().what.find("batches_in_flight_max = 0") != std::string::npos);
}

// Requests that share batches: the queue that selects parts that run together, the verifier with
// several walks at once, and the pipeline as a whole.
#include <random>
#include <set>

#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr Micros kLimit{1'000};

msg::BatchRow row_at(KvSlot slot) {
    msg::BatchRow row{};
    row.slot = slot;
    return row;
}

/// Parts of random requests, rows of random slots, some held.
WaitingPart random_part(std::mt19937_64& random, std::uint32_t batch, Micros now) {
    WaitingPart part;
    part.part.request = RequestId{1 + random() % 5};
    part.part.batch = BatchId{batch};
    part.part.kind = random() % 4 == 0 ? msg::BatchKind::Prefill : msg::BatchKind::Verify;
    part.part.rows = 1 + static_cast<std::uint32_t>(random() % 20);
    const bool held = part.part.kind == msg::BatchKind::Verify && random() % 3 == 0;
    part.part.hold = held ? 1 : 0;
    part.run_by = now + kLimit;
    for (std::uint32_t i = 0; i < part.part.rows; ++i) {
        part.rows.push_back(row_at(static_cast<KvSlot>(random() % 400)));
    }
    return part;
}

/// What a queue promises of one run, given all that is in it.
struct QueueModel {
    std::size_t batch_rows = kBatchRowsMax;
    std::deque<WaitingPart> waiting = {};
    std::set<std::pair<std::uint64_t, std::uint32_t>> blocked = {};  // request, batch: not ready

    [[nodiscard]] bool is_blocked(const WaitingPart& part) const {
        return blocked.contains({part.part.request.value, part.part.batch.value});
    }
    void check_run(const std::vector<WaitingPart>& run, Micros now) {
        std::size_t rows = 0;
        std::size_t verify_rows = 0;
        std::map<RequestId, std::size_t> rows_of;
        std::set<KvSlot> slots;
        for (const WaitingPart& part : run) {
            const RequestId request = part.part.request;
            rows += part.rows.size();
            if (part.part.kind == msg::BatchKind::Verify) verify_rows += part.rows.size();
            const bool merged = rows_of.contains(request);
            CHECK_FALSE((merged && part.part.kind == msg::BatchKind::Prefill));
            rows_of[request] += part.rows.size();
            CHECK_FALSE((merged && rows_of[request] > kGammaMax + 1));
            for (auto ahead = waiting.begin(); ahead->part.batch != part.part.batch; ++ahead) {
                CHECK(ahead->part.request != request);  // the order of a request is kept
                for (const msg::BatchRow& row : ahead->rows) slots.insert(row.slot);
            }
            CHECK_FALSE(is_blocked(part));
            take(part);
        }
        for (const WaitingPart& part : run) {
            const bool held = part.part.hold != 0 && now < part.run_by;
            const bool released = std::any_of(run.begin(), run.end(), [&](const auto& other) {
                return other.part.request == part.part.request && other.part.hold == 0;
            });
            const bool follows = released || was_released_behind(part, now);
            CHECK((!held || follows));
        }
        CHECK(rows <= batch_rows);
        CHECK(verify_rows <= kVerifyRowsMax);
        CHECK(rows_of.size() <= kBatchPartsMax);
    }
    /// One after it may go as soon as there is room: then it need not wait either.
    [[nodiscard]] bool was_released_behind(const WaitingPart& part, Micros now) const {
        return std::any_of(waiting.begin(), waiting.end(), [&](const WaitingPart& other) {
            const bool free = other.part.hold == 0 || now >= other.run_by;
            return other.part.request == part.part.request && free && !is_blocked(other);
        });
    }
    void take(const WaitingPart& part) {
        const auto found = std::find_if(
            waiting.begin(), waiting.end(),
            [&](const WaitingPart& other) { return other.part.batch == part.part.batch; });
        REQUIRE(found != waiting.end());
        waiting.erase(found);
    }
};

bool share_a_slot(const WaitingPart& a, const WaitingPart& b) {
    return std::any_of(a.rows.begin(), a.rows.end(), [&](const msg::BatchRow& one) {
        return std::any_of(b.rows.begin(), b.rows.end(),
                           [&](const msg::BatchRow& other) { return one.slot == other.slot; });
    });
}

}  // namespace

TEST_CASE("the queue keeps each request's order, lets others overtake, and loses nothing") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const std::uint32_t batch_rows = seed % 2 == 0 ? kVerifyRowsMax : 150;
        SegmentQueue queue{batch_rows};
        QueueModel model{.batch_rows = batch_rows};
        SegmentQueue::Rules rules{.readiness_of = [&](const WaitingPart& part) {
            return model.is_blocked(part) ? SegmentQueue::Readiness::Waits
                                          : SegmentQueue::Readiness::Ready;
        }};
        Micros now{0};
        std::uint32_t batch = 0;
        for (int step = 0; step < 30; ++step) {
            for (std::uint64_t i = random() % 4; i > 0; --i) {
                WaitingPart part = random_part(random, ++batch, now);
                if (random() % 4 == 0) model.blocked.insert({part.part.request.value, batch});
                model.waiting.push_back(part);
                queue.push(std::move(part));
            }
            if (random() % 3 == 0) model.blocked.clear();
            now += Micros{random() % 400};
            const std::deque<WaitingPart> before = model.waiting;
            const auto run = queue.take(rules, now);
            REQUIRE(run);
            model.check_run(run.value(), now);
            // Whoever wrote to a slot first in the queue does so first in the layers.
            for (const WaitingPart& part : run.value()) {
                for (const WaitingPart& ahead : before) {
                    if (ahead.part.batch == part.part.batch) break;
                    CHECK_FALSE(share_a_slot(ahead, part));
                }
            }
        }
        model.blocked.clear();
        now += kLimit;
        while (queue.size() > 0) {
            const auto run = queue.take(rules, now);
            REQUIRE(run);
            REQUIRE_FALSE(run.value().empty());
            model.check_run(run.value(), now);
        }
        CHECK(model.waiting.empty());
    }
}

TEST_CASE("what stands after a prefill of its request is not looked at before that has run") {
    SegmentQueue queue;
    std::vector<std::uint32_t> looked;
    const SegmentQueue::Rules rules{.readiness_of = [&](const WaitingPart& part) {
        looked.push_back(part.part.batch.value);
        return SegmentQueue::Readiness::Ready;
    }};
    for (std::uint32_t batch = 1; batch <= 5; ++batch) {
        WaitingPart part;
        part.part.request = RequestId{batch < 4 ? 1U : 2U};
        part.part.batch = BatchId{batch};
        part.part.kind = batch < 3 ? msg::BatchKind::Prefill : msg::BatchKind::Verify;
        part.rows = {row_at(static_cast<KvSlot>(batch))};
        queue.push(std::move(part));
    }
    CHECK(queue.take(rules, Micros{0}).value().size() == 3);
    CHECK(looked == std::vector<std::uint32_t>{1, 4, 5});
    CHECK(queue.take(rules, Micros{0}).value().size() == 1);
    CHECK(queue.take(rules, Micros{0}).value().size() == 1);
    CHECK(looked == std::vector<std::uint32_t>{1, 4, 5, 2, 3});
}

TEST_CASE("a held part waits for one after it or for its time, whichever comes first") {
    SegmentQueue queue;
    SegmentQueue::Rules rules{
        .readiness_of = [](const WaitingPart&) { return SegmentQueue::Readiness::Ready; }};
    const auto part = [](std::uint32_t batch, std::uint16_t hold) {
        WaitingPart made;
        made.part = {.request = RequestId{1},
                     .attempt = Attempt{1},
                     .batch = BatchId{batch},
                     .kind = msg::BatchKind::Verify,
                     .base = 0,
                     .rows = 1,
                     .hold = hold};
        made.rows.push_back(row_at(static_cast<KvSlot>(batch)));
        made.run_by = kLimit;
        return made;
    };
    queue.push(part(1, 1));
    CHECK(queue.take(rules, Micros{0}).value().empty());
    CHECK(queue.due(Micros{0}) == kLimit);
    queue.push(part(2, 1));
    CHECK(queue.take(rules, kLimit - Micros{1}).value().empty());
    queue.push(part(3, 0));
    queue.push(part(4, 1));
    const auto run = queue.take(rules, Micros{1}).value();
    CHECK(run.size() == 3);
    CHECK(queue.size() == 1);
    CHECK(queue.take(rules, kLimit - Micros{1}).value().empty());
    CHECK(queue.take(rules, kLimit).value().size() == 1);
    CHECK(queue.due(kLimit) == std::nullopt);
}

namespace {

/// A request with a random tree below its root, run through the layers of a fresh toy model.
struct VerifyCase {
    Request request;
    std::shared_ptr<RequestState> state;
    std::vector<msg::BatchRow> rows;
    std::vector<float> hidden;
};

/// Rows with synthetic hidden states: the verifier sees nothing but those.
VerifyCase random_case(std::mt19937_64& random, std::uint64_t id) {
    VerifyCase made;
    made.request = small_request(random());
    if (random() % 2 == 0) make_sampled(made.request, random());
    made.state = std::make_shared<RequestState>(RequestId{id}, Attempt{1},
                                                BeginPayload{made.request}, TreeRole::Follows);
    const auto length = static_cast<Position>(made.request.text.size());
    made.rows.push_back({.node = NodeId{1},
                         .parent = msg::kNoParent,
                         .token = made.request.text.back(),
                         .position = length - 1,
                         .slot = 0});
    for (std::uint32_t i = 1; i < 1 + random() % 20; ++i) {
        // Small tokens: the toy's head likes them, so that walks get somewhere.
        const msg::BatchRow& parent = made.rows[random() % 2 == 0 ? i - 1 : random() % i];
        msg::BatchRow row{.node = NodeId{i + 1},
                          .parent = parent.node.value,
                          .token = (parent.token * 5 + 3) % 16,
                          .position = parent.position + 1,
                          .slot = 0};
        const bool taken = std::any_of(made.rows.begin(), made.rows.end(), [&](const auto& other) {
            return other.parent == row.parent && other.token == row.token;
        });
        if (taken) row.token = static_cast<TokenId>(16 + i);
        made.rows.push_back(row);
    }
    for (const msg::BatchRow& row : made.rows) {
        for (int k = 0; k < 4; ++k) made.hidden.push_back(static_cast<float>(random() & 0xffffU));
        made.hidden.push_back(static_cast<float>(row.token));
    }
    return made;
}

VerifyPart part_of(const VerifyCase& verify_case) {
    return {.state = *verify_case.state,
            .committed = verify_case.state->text(),
            .rows = verify_case.rows,
            .hidden = verify_case.hidden};
}

}  // namespace

TEST_CASE("judging many requests at once says what judging each alone says, in fewer head calls") {
    std::size_t alone_calls = 0;
    std::size_t together_calls = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        FakeBackend backend{0, kFakeLayers, 64};
        Verifier one_by_one{backend, {.head_rows = 1}};
        Verifier at_once{backend, {.head_rows = 1 + static_cast<std::uint32_t>(seed % 12)}};
        std::vector<VerifyCase> cases;
        for (std::uint64_t i = 0; i < 1 + seed % 8; ++i) {
            cases.push_back(random_case(random, i + 1));
        }
        std::vector<VerifyPart> parts;
        for (const VerifyCase& verify_case : cases) parts.push_back(part_of(verify_case));
        at_once.verify(parts);
        const std::size_t together = backend.head_calls;
        for (std::size_t i = 0; i < cases.size(); ++i) {
            std::vector<VerifyPart> alone{part_of(cases[i])};
            one_by_one.verify(alone);
            CHECK(parts[i].result.tokens == alone[0].result.tokens);
            CHECK(parts[i].result.nodes == alone[0].result.nodes);
            CHECK(parts[i].result.finish == alone[0].result.finish);
            CHECK(parts[i].result.last_row == alone[0].result.last_row);
        }
        alone_calls += backend.head_calls - together;
        together_calls += together;
    }
    CHECK(together_calls * 2 < alone_calls);
}

TEST_CASE("tokens that a device drew after all rows lead to the same verdicts, without a head") {
    int verified = 0;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        FakeBackend backend{0, kFakeLayers, 64};
        backend.draws_itself = true;
        backend.on_device = seed % 2 == 0;
        Verifier verify{backend, {}};
        const VerifyCase verify_case = random_case(random, seed);
        std::vector<VerifyPart> want{part_of(verify_case)};
        verify.verify(want);

        if (!verify.draws_behind_rows(*verify_case.state)) continue;  // it has penalties
        ++verified;
        std::vector<DrawJob> jobs;
        for (const msg::BatchRow& row : verify_case.rows)
            jobs.push_back(Verifier::job_behind(*verify_case.state, row));
        std::vector<std::optional<TokenId>> drawn(jobs.size());
        backend.draw(verify_case.hidden, jobs, drawn);
        std::vector<VerifyPart> got{part_of(verify_case)};
        got[0].drawn = drawn;
        got[0].hidden = {};
        const std::size_t heads = backend.head_calls;
        verify.verify(got);
        CHECK(backend.head_calls == heads);
        CHECK(got[0].result.tokens == want[0].result.tokens);
        CHECK(got[0].result.nodes == want[0].result.nodes);
        CHECK(got[0].result.finish == want[0].result.finish);
        CHECK(got[0].result.last_row == want[0].result.last_row);
    }
    CHECK(verified > 10);
}

TEST_CASE("requests that run at once share batches and keep their own sampling") {
    std::vector<Request> requests;
    std::vector<Oracle> oracles;
    Texts texts;
    for (std::uint64_t i = 0; i < 8; ++i) {
        Request request = small_request(i + 1);
        if (i % 2 == 1) make_sampled(request, i);
        request.context = 160;
        oracles.push_back(plain_answer(request));
        texts.push_back(whole_text(request, oracles.back()));
        requests.push_back(std::move(request));
    }
    PipelineOptions options{.segments = 2, .drafting = Drafting::Oracle, .kv_slots = 2048};
    Pipeline pipeline{options, texts};
    for (std::uint64_t i = 0; i < 8; ++i) pipeline.open_and_begin(RequestId{i + 1}, requests[i]);
    pipeline.run_until_finished(8);
    for (std::uint64_t i = 0; i < 8; ++i) {
        const auto answer = pipeline.conductor.log.answer(RequestId{i + 1});
        CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracles[i].answer);
    }
    // Several verdicts come out of a run.
    const auto runs = pipeline.world.counted(segment_id(2), counters::kBatches);
    CHECK(runs * 5 < static_cast<std::uint64_t>(pipeline.conductor.verdicts) * 4);
}

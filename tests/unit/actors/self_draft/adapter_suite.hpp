// Kangaroo on a real backend: a segment that drafts with its exit's adapter, compared with a fresh
// pass over the same text, bit for bit:
//
//     of the adapter     its output after every text that a row has seen, so its keys of that text
//     of the drafts      the first candidate of an exit with that adapter, as FOLD's exit finds it
//     of the layers      the keys and values of the committed text, and states after the last layer
//
// A template over the traits of a backend (tests/unit/backend/what.hpp), run by the programs of the
// reference and CPU backends (adapter_backends_test.cpp) and of the emulated CUDA backend.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "actors/decoding/head_candidates.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "tests/support/pipeline/pipeline.hpp"
#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/specs.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

using Tokens = std::vector<TokenId>;

/// A backend that writes down which texts its rows have seen, and what came of them.
class WatchedBackend final : public Backend {
public:
    explicit WatchedBackend(std::unique_ptr<Backend> inner) : inner_{std::move(inner)} {
        token_at_.resize(static_cast<std::size_t>(inner_->kv_slots()));
    }
    [[nodiscard]] const ModelConfig& config() const override { return inner_->config(); }
    [[nodiscard]] int first_layer() const override { return inner_->first_layer(); }
    [[nodiscard]] int last_layer() const override { return inner_->last_layer(); }
    [[nodiscard]] std::int32_t kv_slots() const override { return inner_->kv_slots(); }
    [[nodiscard]] MemoryPlace memory_place() const override { return inner_->memory_place(); }
    [[nodiscard]] RowMemory make_rows(std::size_t rows) override { return inner_->make_rows(rows); }
    void gather(std::span<const RowSource> rows, HiddenRows to) override {
        inner_->gather(rows, to);
    }
    void copy(ConstHiddenRows from, HiddenRows to) override { inner_->copy(from, to); }
    void head(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) override {
        inner_->head(id, hidden, rows, logits);
    }
    void head_listed(HeadId id,
                     ConstHiddenRows hidden,
                     int rows,
                     std::span<float> logits) override {
        inner_->head_listed(id, hidden, rows, logits);
    }
    [[nodiscard]] bool has_head(HeadId id) const override { return inner_->has_head(id); }
    [[nodiscard]] std::span<const TokenId> short_list(HeadId id) const override {
        return inner_->short_list(id);
    }
    [[nodiscard]] DeviceSampler* device_sampler() override { return inner_->device_sampler(); }
    [[nodiscard]] std::size_t kv_bytes() const override { return inner_->kv_bytes(); }
    void read_kv(KvSlot slot, KvBytes bytes) const override { inner_->read_kv(slot, bytes); }
    [[nodiscard]] MemoryUse memory_use() const override { return inner_->memory_use(); }
    [[nodiscard]] std::string equality_class() const override { return inner_->equality_class(); }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows hidden,
                          const CancelToken* cancel) override {
        for (const Row& row : rows) {
            if (row.first > 0) continue;  // its token is known
            token_at_[static_cast<std::size_t>(row.slot)] = row.token;
            Tokens before = text_of(row);
            before.pop_back();
            if (row.path_count > 1) proposed[std::move(before)] = row.token;
            if (row.path_count != 1) continue;  // of a root: all that it sees is committed
            committed = text_of(row);
            slots.clear();
            for (Position p = 0; p <= row.position; ++p) slots.push_back(row.key_slot(p));
        }
        const RunOutcome outcome = inner_->run_layers(rows, hidden, cancel);
        if (outcome == RunOutcome::Cancelled) return outcome;
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (rows[r].last == 2 * last_layer()) states[text_of(rows[r])] = row_of(hidden, r);
        }
        return outcome;
    }
    RunOutcome run_adapter(std::span<const Row> rows,
                           ConstHiddenRows hidden,
                           HiddenRows out,
                           const CancelToken* cancel) override {
        const RunOutcome outcome = inner_->run_adapter(rows, hidden, out, cancel);
        if (outcome == RunOutcome::Cancelled) return outcome;
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const auto [known, is_new] = adapted.try_emplace(text_of(rows[r]), row_of(out, r));
            if (!is_new) CHECK(same_bits(known->second, row_of(out, r)));
        }
        return outcome;
    }

    // By the text that a row sees, its own token included.
    std::map<Tokens, std::vector<float>> adapted;  // the adapter's output
    std::map<Tokens, std::vector<float>> states;   // after the last layer, where run_layers() ends
    std::map<Tokens, TokenId> proposed;            // the candidate after it that was verified
    Tokens committed;                              // the newest root's text
    std::vector<KvSlot> slots;                     // of its positions

private:
    [[nodiscard]] Tokens text_of(const Row& row) const {
        Tokens text;
        for (Position p = 0; p <= row.position; ++p)
            text.push_back(token_at_[static_cast<std::size_t>(row.key_slot(p))]);
        return text;
    }
    [[nodiscard]] std::vector<float> row_of(ConstHiddenRows rows, std::size_t row) {
        const auto dim = static_cast<std::size_t>(config().dim);
        std::vector<float> one(dim);
        copy(rows.subspan(row * dim, dim), one);
        return one;
    }

    std::unique_ptr<Backend> inner_;
    std::vector<TokenId> token_at_;
};

/// Plain passes over texts, on a backend of their own: no candidate was ever in its slots.
class FreshPass {
public:
    FreshPass(std::unique_ptr<Backend> backend, int exit)
        : backend_{std::move(backend)}, exit_{exit} {}

    [[nodiscard]] Backend& backend() { return *backend_; }
    /// The adapter's output after the text. What it has in common with the last one is not run
    /// again.
    [[nodiscard]] std::vector<float> adapted(const Tokens& text) {
        const auto same =
            std::mismatch(text.begin(), text.end(), adapted_.begin(), adapted_.end()).first;
        const auto begin = std::min(same - text.begin(), std::ssize(text) - 1);
        adapted_ = text;
        const std::vector<KvSlot> slots = home_slots(text.size());
        std::vector<Row> rows = text_rows(*backend_, text, slots, static_cast<Position>(begin));
        for (Row& row : rows) row.last = 2 * exit_;
        const std::vector<float> hidden = states_of(*backend_, rows);
        std::vector<float> out(hidden.size());
        REQUIRE(backend_->run_adapter(rows, hidden, out, nullptr) == RunOutcome::Done);
        const auto dim = static_cast<std::ptrdiff_t>(backend_->config().dim);
        return {out.end() - dim, out.end()};
    }
    /// Hidden states after the last layer; keys and values are in the home slots then.
    [[nodiscard]] std::vector<float> states(const Tokens& text) {
        const std::vector<KvSlot> slots = home_slots(text.size());
        return states_of(*backend_, text_rows(*backend_, text, slots));
    }
    /// The first candidate of an exit with this adapter.
    [[nodiscard]] TokenId exit_token(const Tokens& text,
                                     std::vector<float>& adapted,
                                     const SamplingParams& sampling) {
        const HeadRow row{.hidden = {adapted, 0},
                          .seen = {.committed = text, .path = {}},
                          .job = {&sampling, static_cast<Position>(text.size()), 1}};
        return HeadCandidates{*backend_}.find(HeadId::Adapter, {&row, 1}).front().at(0).token;
    }

private:
    std::unique_ptr<Backend> backend_;
    int exit_;
    Tokens adapted_;  // whose keys the adapter has
};

/// One segment on a real backend, with a conductor that counts what was drafted and accepted.
struct KangarooScene {
    KangarooScene(std::unique_ptr<Backend> inner, const PipelineOptions& options)
        : backend{std::move(inner)},
          world{options.seed},
          segment{segment_plan(options, 1), backend} {
        world.add(kTheConductor, conductor);
        world.add(kFirstSegment, segment);
        world.tap = [this](StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
            if (to != kTheConductor || kind != static_cast<std::uint16_t>(msg::Kind::Verdict))
                return;
            const msg::Verdict verdict = decode_message<msg::Verdict>(bytes).value();
            if (verdict.depth == 0) return;
            const std::uint32_t accepted = verdict.count - 1;
            ++(accepted == verdict.depth ? whole : accepted > 0 ? in_part : rejected);
        };
        world.start();
    }
    KangarooScene(const KangarooScene&) = delete;
    KangarooScene& operator=(const KangarooScene&) = delete;

    void begin(RequestId id, const BeginPayload& spec, Attempt attempt) {
        world.post(
            kFirstSegment,
            control::Begin{.request = id, .attempt = attempt, .payload = encode_begin(spec)});
    }
    void open(RequestId id, const BeginPayload& spec) {
        begin(id, spec, conductor.log.open(id, spec.text).value());
    }
    /// As after the loss of a stage: prompt and committed tokens, once more.
    void replay(RequestId id, const BeginPayload& spec) {
        BeginPayload again{spec};
        const auto answer = conductor.log.answer(id);
        again.text.insert(again.text.end(), answer.begin(), answer.end());
        again.replayed = static_cast<Position>(answer.size());
        begin(id, again, conductor.log.restart(id).value());
    }
    void run(int verdicts_or_answers, bool until_finished) {
        world.run([&] {
            return (until_finished ? conductor.finished : conductor.verdicts) >=
                   verdicts_or_answers;
        });
        if (world.failure) FAIL(world.failure->what);
    }

    WatchedBackend backend;
    ShuffledWorld world;
    TestConductor conductor;
    SegmentActor segment;
    // Rounds with candidates, by how many of them were accepted.
    int whole = 0;
    int in_part = 0;
    int rejected = 0;
};

template <class Traits>
class Kangaroo {
public:
    explicit Kangaroo(const char* fixture) : file_{open_fixture(fixture)} {
        std::mt19937 random{81};
        adapter_ = random_adapter(random, file_.config());
    }

    [[nodiscard]] std::unique_ptr<Backend> make(bool with_adapter = true) const {
        What what{.kv_slots = 1024};
        if (with_adapter) what.adapter = adapter_;
        return Traits::make(file_, what);
    }
    [[nodiscard]] FreshPass fresh() const { return {make(), kExit}; }
    [[nodiscard]] PipelineOptions options(std::uint64_t seed) const {
        PipelineOptions options{.seed = seed};
        options.dispatch.start = StartRule::AtOnce;
        options.dispatch.rows_max = 8;
        options.dispatch.prefill_rows = 7;
        SelfDraftOptions& self = options.self_draft.emplace();
        self.exit = kExit;
        self.head = HeadId::Adapter;
        self.adapter = true;
        self.gamma = 1 + static_cast<std::int32_t>(seed % 3);
        self.auto_off = false;
        return options;
    }
    /// So hot that the noise of a position, which drafts and target share, often decides.
    [[nodiscard]] BeginPayload request(std::uint64_t seed, bool greedy) const {
        std::mt19937 random{static_cast<unsigned>(seed)};
        BeginPayload request;
        request.text = random_tokens(random, file_.config().vocab_size, 5 + random() % 20);
        request.max_tokens = 24;
        request.context = 128;
        if (!greedy) request.sampling = {.temperature = 8.0F, .seed = seed};
        return request;
    }
    [[nodiscard]] Tokens plain(const Request& request) const {
        const std::unique_ptr<Backend> backend = make(false);
        PlainDecoder decoder =
            PlainDecoder::make(*backend, {.prefill_rows = 7, .context = request.context}).value();
        Tokens answer;
        const auto on_token = [&](TokenId token) {
            answer.push_back(token);
            return Go::On;
        };
        REQUIRE(decoder.run(request, on_token, nullptr, [] { return std::chrono::microseconds{0}; })
                    .ok());
        return answer;
    }

    /// What was written down of the adapter is what plain passes have.
    void check(const WatchedBackend& seen, const SamplingParams& sampling) const {
        FreshPass pass = fresh();
        std::size_t proposed = 0;
        for (const auto& [text, x] : seen.adapted) {  // a text comes after its beginnings
            std::vector<float> want = pass.adapted(text);
            CHECK(same_bits(x, want));
            const auto found = seen.proposed.find(text);
            if (found == seen.proposed.end()) continue;
            CHECK(pass.exit_token(text, want, sampling) == found->second);
            ++proposed;
        }
        CHECK(proposed == seen.proposed.size());
    }
    /// States after the last layer, keys and values of the newest root's text. Of one request
    /// alone: another one's may have taken its slots.
    void check_layers(WatchedBackend& seen) const {
        REQUIRE(!seen.committed.empty());
        FreshPass pass = fresh();
        const std::vector<float> all = pass.states(seen.committed);
        const auto dim = static_cast<std::size_t>(file_.config().dim);
        std::size_t compared = 0;
        for (std::size_t p = 0; p < seen.committed.size(); ++p) {
            const auto end = seen.committed.begin() + static_cast<std::ptrdiff_t>(p) + 1;
            const auto found = seen.states.find({seen.committed.begin(), end});
            if (found == seen.states.end()) continue;
            CHECK(same_bits(std::span{all}.subspan(p * dim, dim), found->second));
            ++compared;
        }
        // A device that draws the target's tokens runs the last layers out of sight.
        if (seen.device_sampler() == nullptr) CHECK(compared == seen.committed.size());
        if (seen.kv_bytes() == 0) return;
        CHECK(kv_of(seen, seen.slots) == kv_of(pass.backend(), home_slots(seen.committed.size())));
    }

private:
    static constexpr int kExit = 1;

    ModelFile file_;
    AdapterSpec adapter_;
};

TEST_CASE_TEMPLATE_DEFINE(
    "after accepts, rejects and full acceptance states and an adapter's keys are a fresh pass's",
    Traits,
    KangarooOneRequest) {
    const Kangaroo<Traits> kangaroo{"llama-q4_1"};
    int whole = 0;
    int in_part = 0;
    int rejected = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        const BeginPayload request = kangaroo.request(seed, seed == 6);
        KangarooScene scene{kangaroo.make(), kangaroo.options(seed)};
        scene.open(RequestId{1}, request);
        scene.run(1, true);
        const auto answer = scene.conductor.log.answer(RequestId{1});
        CHECK(Tokens{answer.begin(), answer.end()} == kangaroo.plain(request));
        CHECK(!scene.backend.proposed.empty());
        kangaroo.check(scene.backend, request.sampling);
        kangaroo.check_layers(scene.backend);
        whole += scene.whole;
        in_part += scene.in_part;
        rejected += scene.rejected;
    }
    CHECK(whole > 0);
    CHECK(in_part > 0);
    CHECK(rejected > 0);
}

TEST_CASE_TEMPLATE_DEFINE(
    "requests that draft together and one that is replayed have an adapter's keys of a fresh pass",
    Traits,
    KangarooRequests) {
    const Kangaroo<Traits> kangaroo{"llama-q4_1"};
    const BeginPayload first = kangaroo.request(11, false);
    KangarooScene scene{kangaroo.make(), kangaroo.options(2)};
    std::vector<BeginPayload> requests;
    for (std::uint64_t i = 0; i < 3; ++i) {
        requests.push_back(kangaroo.request(11 + i, false));
        requests.back().sampling = first.sampling;  // one for all: its noise is by position
        scene.open(RequestId{i + 1}, requests.back());
    }
    scene.run(5, false);
    REQUIRE(scene.conductor.finished == 0);
    scene.replay(RequestId{2}, requests[1]);
    scene.run(3, true);
    for (std::uint64_t i = 0; i < 3; ++i) {
        const auto answer = scene.conductor.log.answer(RequestId{i + 1});
        CHECK(Tokens{answer.begin(), answer.end()} == kangaroo.plain(requests[i]));
    }
    kangaroo.check(scene.backend, first.sampling);
}

}  // namespace paceline::testing

// The comparisons of `paceline check` (texts, time lines) against naive implementations.
#include "launch/session/answer_compare.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launch/check/faults.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/simulate/overlap.hpp"
#include "runtime/observe/trace_file.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

std::vector<TokenId> random_text(std::mt19937& random, std::size_t length, int vocabulary) {
    std::vector<TokenId> text(length);
    for (TokenId& token : text)
        token = static_cast<TokenId>(random() % static_cast<unsigned>(vocabulary));
    return text;
}

/// Microsecond by microsecond.
Overlap naive_overlap(const BusySpans& spans) {
    constexpr std::size_t kMicros = 400;
    std::vector<bool> draft(kMicros);
    std::vector<bool> target(kMicros);
    const auto paint = [](const std::vector<Span>& list, std::vector<bool>& on) {
        for (const Span& span : list) {
            for (auto t = span.begin_us; t < span.end_us; ++t)
                on[static_cast<std::size_t>(t)] = true;
        }
    };
    paint(spans.draft, draft);
    paint(spans.target, target);
    const auto bounds = [](const std::vector<bool>& on) {
        const auto first = std::find(on.begin(), on.end(), true);
        const auto last = std::find(on.rbegin(), on.rend(), true);
        return std::pair{first - on.begin(), on.rend() - last};
    };
    Overlap overlap;
    const auto [draft_begin, draft_end] = bounds(draft);
    const auto [target_begin, target_end] = bounds(target);
    const auto begin = std::max(draft_begin, target_begin);
    const auto end = std::min(draft_end, target_end);
    if (begin >= end) return overlap;
    for (auto t = begin; t < end; ++t) {
        const auto at = static_cast<std::size_t>(t);
        overlap.draft += draft[at] ? 1 : 0;
        overlap.target += target[at] ? 1 : 0;
        overlap.both += draft[at] && target[at] ? 1 : 0;
    }
    const auto length = static_cast<double>(end - begin);
    overlap.seconds = length / 1e6;
    overlap.draft /= length;
    overlap.target /= length;
    overlap.both /= length;
    return overlap;
}

std::vector<Span> random_spans(std::mt19937& random) {
    std::vector<Span> spans(1 + random() % 12);
    for (Span& span : spans) {
        span.begin_us = static_cast<std::int64_t>(random() % 300);
        span.end_us = span.begin_us + 1 + static_cast<std::int64_t>(random() % 90);
    }
    return spans;
}

}  // namespace

TEST_CASE("the first difference is where a token-by-token walk finds it") {
    std::mt19937 random{7};
    for (int round = 0; round < 500; ++round) {
        const auto one = random_text(random, random() % 12, 3);
        auto other = random_text(random, random() % 12, 3);
        if (random() % 2 == 0)
            std::copy_n(one.begin(), std::min(one.size(), other.size()), other.begin());
        std::optional<std::size_t> expected;
        for (std::size_t i = 0; i < std::max(one.size(), other.size()) && !expected; ++i) {
            if (i >= one.size() || i >= other.size() || one[i] != other[i]) expected = i;
        }
        CHECK(first_difference(one, other) == expected);
        CHECK((difference_text(one, other) == "equal") == !expected);
    }
    CHECK(difference_text(std::vector<TokenId>{5, 6}, std::vector<TokenId>{5, 9}) ==
          "token 1: 6 instead of 9");
    CHECK(difference_text(std::vector<TokenId>{5}, std::vector<TokenId>{5, 9, 1}) ==
          "ends after 1 tokens instead of 3");
}

TEST_CASE("a loop is a run of tokens that was there before") {
    std::mt19937 random{11};
    for (int round = 0; round < 300; ++round) {
        const auto text = random_text(random, random() % 30, 2);
        const std::size_t length = 1 + random() % 6;
        std::optional<std::size_t> expected;
        for (std::size_t b = 0; b + length <= text.size() && !expected; ++b) {
            for (std::size_t a = 0; a < b && !expected; ++a) {
                const auto first = text.begin() + static_cast<std::ptrdiff_t>(a);
                const auto second = text.begin() + static_cast<std::ptrdiff_t>(b);
                if (std::equal(first, first + static_cast<std::ptrdiff_t>(length), second))
                    expected = b;
            }
        }
        CHECK(first_loop(text, length) == expected);
    }
}

TEST_CASE("overlap is what painting the time line says") {
    std::mt19937 random{3};
    for (int round = 0; round < 300; ++round) {
        const BusySpans spans{random_spans(random), random_spans(random)};
        const Overlap fast = overlap_of(spans);
        const Overlap slow = naive_overlap(spans);
        CHECK(fast.seconds == doctest::Approx(slow.seconds));
        CHECK(fast.draft == doctest::Approx(slow.draft));
        CHECK(fast.target == doctest::Approx(slow.target));
        CHECK(fast.both == doctest::Approx(slow.both));
    }
    CHECK(overlap_of({}).seconds == 0.0);
    CHECK(overlap_of({{{0, 10}}, {}}).both == 0.0);
    CHECK(overlap_of({{}, {{0, 10}, {30, 40}}}).target == doctest::Approx(0.5));
}

TEST_CASE("a trace file tells the same spans as the events it was made of") {
    std::vector<ProcessTrace> traces(2);
    BusySpans expected;
    std::int64_t time = 1'000;
    for (int i = 0; i < 40; ++i) {
        const bool drafts = i % 2 == 0;
        ProcessTrace& trace = traces[drafts ? 1 : 0];
        trace.name = drafts ? "draft" : "segment-1";
        trace.stage = StageId{static_cast<std::uint16_t>(drafts ? 2 : 1)};
        trace.epoch = Epoch{1};
        TraceEvent event{.time_us = time, .duration_us = 70, .kind = TraceKind::Job};
        event.label = job_name_index(drafts ? "draft" : i % 3 == 0 ? "verify" : "prefill");
        trace.events.push_back(event);
        trace.recorded = trace.events.size();
        time += 40;
    }
    for (const ProcessTrace& trace : traces) add_spans(trace.events, expected);
    const Result<BusySpans> read = spans_of_trace(trace_file_text(traces));
    REQUIRE(read.ok());
    CHECK(read.value().draft.size() == expected.draft.size());
    CHECK(read.value().target.size() == expected.target.size());
    // Times in a file count from its first event.
    CHECK(overlap_of(read.value()).both == doctest::Approx(overlap_of(expected).both));
    CHECK(overlap_of(expected).both > 0.1);
    CHECK_FALSE(spans_of_trace("[not json").ok());
    CHECK_FALSE(spans_of_trace("{\"a\": 1}").ok());
}

TEST_CASE("prompts are read from the files of the usual benchmarks") {
    const auto prompts = parse_prompts(
        "{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\\n\", \"test\": \"x\"}\n"
        "\n"
        "{\"question_id\": 81, \"turns\": [\"one\", \"two\"]}\r\n"
        "{\"question\": \"how many?\", \"answer\": \"3\"}\n"
        "{\"text\": \"write it\", \"code\": \"c\"}",
        "set.jsonl");
    REQUIRE(prompts.ok());
    REQUIRE(prompts.value().size() == 4);
    CHECK(prompts.value()[0].id == "HumanEval/0");
    CHECK(prompts.value()[0].text == "def f():\n");
    CHECK(prompts.value()[1].id == "81");
    CHECK(prompts.value()[1].text == "one");
    CHECK(prompts.value()[2].id == "4");
    CHECK(prompts.value()[2].text == "how many?");
    CHECK(prompts.value()[3].text == "write it");
    for (const char* bad : {"", "\n\n", "[1]", "{\"prompt\": 3}", "{\"prompt\": \"\"}", "{"}) {
        const auto wrong = parse_prompts(bad, "set.jsonl");
        REQUIRE_FALSE(wrong.ok());
        CHECK(wrong.error().what.find("set.jsonl") != std::string::npos);
    }
}

TEST_CASE("a conversation is read with its roles, up to the last message that the model answers") {
    const auto prompts = parse_prompts(
        R"({"id": "a", "messages": [{"role": "system", "content": "S"}, {"content": "U", "role": "user"},)"
        R"( {"role": "assistant", "content": "A"}]})"
        "\n"
        R"({"prompt": [{"role": "user", "content": "U"}], "tools": [{"name": "f"}]})"
        "\n"
        R"({"prompt": "P", "messages": [{"role": "user", "content": "U"}]})",
        "set.jsonl");
    REQUIRE_MESSAGE(prompts.ok(), (prompts.ok() ? "" : prompts.error().what));
    REQUIRE(prompts.value().size() == 3);
    CHECK(prompts.value()[0].text.empty());
    CHECK(prompts.value()[0].messages ==
          R"([{"role":"system","content":"S"},{"content":"U","role":"user"}])");
    CHECK(prompts.value()[1].messages == R"([{"role":"user","content":"U"}])");
    CHECK(prompts.value()[1].tools == R"([{"name":"f"}])");
    CHECK(prompts.value()[2].text == "P");
    CHECK(prompts.value()[2].messages.empty());
}

TEST_CASE("a line that is no prompt is refused with the reason") {
    const auto why = [](const std::string& line) {
        const auto wrong = parse_prompts("{\"prompt\": \"Hi\"}\n" + line, "set.jsonl");
        return wrong.ok() ? std::string{} : wrong.error().what;
    };
    CHECK(why(R"({"prompt": NaN})") ==
          "set.jsonl:2: not JSON: byte 12: NaN is not JSON; write null or a number");
    CHECK(why(R"({"prompt": "x", "score": -Infinity})").find("Infinity is not JSON") !=
          std::string::npos);
    CHECK(why(R"({"prompt": "\ud83d"})").find("\\ud83d is half of a surrogate pair") !=
          std::string::npos);
    CHECK(why(R"({"prompt": "\ude00"})").find("\\ude00 is half of a surrogate pair") !=
          std::string::npos);
    CHECK(why("{\"prompt\": \"caf\xe9\"}") == "set.jsonl:2: not JSON: byte 16 (0xe9) is not UTF-8");
    CHECK(why(R"({"prompt": "x")").find("not JSON: byte 15: unexpected end of input") !=
          std::string::npos);
    CHECK(why(R"({"prompt": 1e999})").find("overflow") != std::string::npos);
    CHECK(why("[1]") == "set.jsonl:2: not a JSON object, but a list");
    CHECK(why("{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}") ==
          "set.jsonl:2: JSON of more than 100 levels");
    CHECK(why(R"({"messages": [{"from": "human", "value": "x"}]})") ==
          "set.jsonl:2: \"messages\"[0] is no message such as "
          "{\"role\": \"user\", \"content\": \"Hello\"}");
    CHECK(
        why(R"({"messages": [{"role": "assistant", "content": "x"}]})").find("nothing is asked") !=
        std::string::npos);
    CHECK(why(R"({"conversations": []})").find("no list under \"messages\" such as [{") !=
          std::string::npos);
}

TEST_CASE("the built-in prompts are sixteen different ones") {
    const auto prompts = built_in_prompts();
    REQUIRE(prompts.size() == 16);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        CHECK_FALSE(prompts[i].text.empty());
        for (std::size_t k = 0; k < i; ++k) {
            CHECK(prompts[i].id != prompts[k].id);
            CHECK(prompts[i].text != prompts[k].text);
        }
    }
}

TEST_CASE("faults are spread over the answers and can be drawn again") {
    const FaultPlan plan{.kills = 5, .stalls = 3, .slow = {}, .seed = 9};
    const auto due = draw_faults(plan, 10, 64);
    CHECK(due == draw_faults(plan, 10, 64));
    REQUIRE(due.size() == 8);
    CHECK(std::count_if(due.begin(), due.end(),
                        [](const StageFault& m) { return m.kind == FaultKind::Kill; }) == 5);
    for (std::size_t i = 0; i < due.size(); ++i) {
        CHECK(due[i].prompt < 10);
        CHECK(due[i].token >= 1);
        CHECK(due[i].token <= 32);
        if (i > 0) CHECK(due[i - 1].prompt <= due[i].prompt);
    }
    CHECK(due.back().prompt >= 6);
    CHECK(draw_faults(plan, 0, 64).empty());
    CHECK(draw_faults(plan, 1, 1).size() == 8);
}

TEST_CASE("a slow stage is a name and a share of its time") {
    const auto slow = parse_slow_stage("segment-1:80");
    REQUIRE(slow.ok());
    CHECK(slow.value().name == "segment-1");
    CHECK(slow.value().percent == 80);
    for (const char* bad :
         {"draft", "draft:", ":5", "draft:0", "draft:96", "draft:5x", "draft:-3"}) {
        const auto wrong = parse_slow_stage(bad);
        REQUIRE_FALSE(wrong.ok());
        CHECK(wrong.error().what.find(bad) != std::string::npos);
    }
}

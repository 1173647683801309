// Roles, [draft], [exit] and [schedule]: what they become, and what is refused; embedded methods.
#include <algorithm>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "tests/support/contains.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using paceline::testing::contains;

namespace {

std::string error_of(const std::string& text) {
    const Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    REQUIRE(!config.ok());
    CHECK(config.error().code == Errc::BadArgument);
    CHECK(contains(config.error().what, "test.toml"));
    return config.error().what;
}

PipelineConfig config_of(const std::string& text) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    if (!config.ok()) FAIL(config.error().what);
    return std::move(config).value();
}

std::string stage(const std::string& role, const std::string& rest = "") {
    return "[[stage]]\nname = \"" + role + "\"\nrole = \"" + role + "\"\n" + rest + "\n";
}

/// Two segments with an exit between them and a draft that grows what it names.
const std::string kFold = stage("draft") + stage("early-verify") + stage("final-verify");
const std::string kGrows = "[draft]\nexit_alternatives = 2\n";

}  // namespace

TEST_CASE("every method resolves for models of 4 to 80 layers, and says what it stands for") {
    std::set<std::string_view> wanted{"autoregressive",
                                      "autoregressive-segments",
                                      "speculative",
                                      "speculative-adaptive",
                                      "speculative-tree",
                                      "fold-sequential",
                                      "pearl",
                                      "pearl-lockstep",
                                      "fold",
                                      "fold-lockstep",
                                      "hybrid",
                                      "adadecode",
                                      "adadecode-parallel",
                                      "heads",
                                      "prompt-lookup",
                                      "prompt-lookup+draft",
                                      "four-stages",
                                      "layerskip",
                                      "adaspeed",
                                      "draft-verify",
                                      "swift",
                                      "clasp",
                                      "pearl-skip",
                                      "fold-skip",
                                      "pearl-clasp",
                                      "pearl-swift",
                                      "pearl-layerskip",
                                      "pearl-adaspeed",
                                      "fold-clasp",
                                      "fold-swift",
                                      "fold-layerskip",
                                      "fold-adaspeed"};
    wanted.insert({"jacobi", "lookahead", "pearl-lookahead", "fold-lookahead", "rest", "ouroboros",
                   "medusa", "kangaroo"});
    wanted.insert({"eagle2", "pearl-eagle", "fold-eagle"});
    std::set<std::string_view> found;
    for (const Method& method : methods()) {
        CAPTURE(std::string{method.name});
        found.insert(method.name);
        CHECK(!method.summary.empty());
        // Long ones go on in the next line.
        CHECK(contains(methods_table(), "\n" + std::string{method.name} + " "));
        CHECK(contains(methods_table(), std::string{method.summary.substr(0, 40)}));
        CHECK(method.summary.back() == '.');
        const Result<PipelineConfig> config = method_config(method.name);
        if (!config.ok()) FAIL(config.error().what);
        CHECK(config.value().name == method.name);
        CHECK(validate(dispatch_options(config.value())).ok());
        for (const int layers : {4, 5, 30, 80}) {
            const Result<Placement> placed = place(config.value(), layers, {0, 1});
            if (!placed.ok()) FAIL(placed.error().what);
        }
    }
    CHECK(found == wanted);
}

TEST_CASE(
    "plain is autoregressive, and a method that does not exist is answered with those that do") {
    CHECK(method_config("plain").value().name == "autoregressive");
    const std::string what = method_config("perl").error().what;
    CHECK(contains(what, "'perl'"));
    CHECK(contains(what, "did you mean 'pearl'?"));
    CHECK(contains(what, "four-stages"));
}

TEST_CASE("--device puts all stages of a method on it, in one process") {
    for (const Method& method : methods()) {
        CAPTURE(method.name);
        PipelineConfig config = method_config(method.name).value();
        REQUIRE(use_device(config, Device{1}).ok());
        CHECK(target_device(config) == Device{1});
        const Result<Placement> placed = place(config, 30, {0, 1, 2, 3});
        REQUIRE(placed.ok());
        CHECK(placed.value().processes.size() == 1);
        for (const PlacedStage& stage : placed.value().stages) CHECK(stage.device == Device{1});
    }
}

TEST_CASE("the words for roles mean a segment with an exit and the last segment") {
    const PipelineConfig config = config_of(kFold + kGrows);
    const Placement placed = place(config, 30, {0, 1}).value();
    CHECK(placed.exits() == std::vector{StageId{1}});
    CHECK(std::string{placed.role_text(StageId{1})} == "early-verify");
    CHECK(std::string{placed.role_text(StageId{2})} == "final-verify");
    CHECK(config.exit_sends_candidates());
    CHECK(contains(error_of(stage("final-verify") + stage("segment")),
                   "role = \"final-verify\" is for the last segment"));
    CHECK(contains(error_of(stage("segment") + stage("early-verify")),
                   "an exit at the end of the last segment"));
}

TEST_CASE("only a segment with another one behind it retains what it passes on") {
    const std::string keeps = "retain_mb = 64\n";
    CHECK(contains(error_of(stage("segment") + stage("final-verify", keeps)),
                   "retain_mb = 64: it has no segment behind it"));
    CHECK(contains(error_of(stage("draft", keeps)), "belongs to segments"));
    const Placement many =
        place(config_of(stage("segment", keeps + "segments = 3\n")), 30, {0, 1}).value();
    CHECK(many.stage(StageId{2}).retain_mb == 64);
    CHECK(many.stage(StageId{3}).retain_mb == 0);
}

TEST_CASE("one line makes many segments, in one process or each in its own") {
    const int most = static_cast<int>(kSegmentsMax);
    for (int count = 1; count <= std::min(most, 30); ++count) {
        const std::string so_many = "segments = " + std::to_string(count);
        const PipelineConfig own = config_of(stage("segment", so_many));
        const Placement placed = place(own, 30, {0}).value();
        CHECK(placed.segments() == count);
        CHECK(placed.processes.size() == static_cast<std::size_t>(count));
        CHECK(placed.stages.back().name == "segment-" + std::to_string(count));
        CHECK(placed.stages.back().layers.last == 30);
        const PipelineConfig shared = config_of(stage("segment", so_many + "\nprocess = \"p\""));
        CHECK(place(shared, 30, {0}).value().processes.size() == 1);
    }
    const std::string many = "segments = " + std::to_string(most + 1);
    CHECK(contains(error_of(stage("segment", many)), many + " must be"));
    CHECK(contains(error_of(stage("segment", "segments = 2\nlayers = [0, 3]")), "\"auto\""));
    CHECK(contains(error_of(stage("draft", "segments = 2")), "belongs to segments"));
}

TEST_CASE("an exit of many segments stands between them, not after the last") {
    const PipelineConfig config =
        config_of(stage("segment", "segments = 3\nexit = true") + "[exit]\nproposes = true\n");
    const Placement placed = place(config, 30, {0}).value();
    CHECK(placed.exits() == std::vector{StageId{1}, StageId{2}});
    CHECK(!config.exit_sends_candidates());
    // As many early tokens as may be on their way, and the one that was not certain.
    CHECK(dispatch_options(config).batches_in_flight_max == 6);
}

TEST_CASE("what cannot work together is refused by name") {
    const std::string draft = stage("draft");
    const std::string segment = stage("segment");
    const std::string chain = stage("early-verify") + stage("final-verify");
    const struct {
        std::string text;
        const char* what;
    } cases[] = {
        {segment + "[schedule]\nmode = \"lockstep\"\n", "\"lockstep\" needs a stage with role"},
        {segment + "[schedule]\nmode = \"sequential\"\n", "\"sequential\" needs a stage with role"},
        {draft + segment + "[draft]\npace = \"lockstep\"\n[schedule]\nmode = \"sequential\"\n",
         "lockstep is for both or neither"},
        {draft + segment + "[draft]\n[schedule]\nmode = \"lockstep\"\n", "for both or neither"},
        {draft + segment + "[draft]\npace = \"lockstep\"\n[schedule]\nbatches_in_flight = 2\n",
         "there is one at a time"},
        {stage("correct") + segment, "role = \"correct\" needs a stage with role = \"draft\""},
        {draft + stage("correct") + segment + "[draft]\n", "role = \"correct\" needs"},
        {chain + "[exit]\ncandidates = true\n", "no stage with role = \"draft\" to receive them"},
        {chain, "the exit would do nothing"},
        {draft + chain + "[draft]\n", "no stage continues them"},
        {draft + segment + "[draft]\nexit_alternatives = 2\n",
         "needs an exit that sends candidates"},
        {draft + stage("segment", "segments = 3\nexit = true") + kGrows, "is for one exit, 2"},
        {segment + "[exit]\ncandidates = true\n", "no stage with exit = true"},
        {segment + "[exit]\nproposes = true\ndefers = true\nahead = 1\n", "no stage has exit"},
        {chain + "[exit]\ndefers = true\n", "defers = true is for exits that propose"},
        {chain + "[exit]\nproposes = true\nahead_top = 2\n", "for heads that look ahead"},
        {draft + chain + kGrows + "gamma_early = 2\n", "gamma_early = 2 is for pace"},
        {draft + segment + "[draft]\npace = \"lockstep\"\ngamma_early = 2\n",
         "gamma_early needs an exit that sends candidates"},
        {draft + chain + kGrows + "[exit]\nlockstep = true\n", "waits for the first steps"},
        {draft + segment + "[draft]\nsource = \"model\"\n", "needs a GGUF file"},
        {draft + segment + "[draft]\nmodel = \"x.gguf\"\n", "model = \"x.gguf\" is for source"},
        {draft + segment + "[draft]\nlayers = 3\n", "layers = 3 is for source"},
        {draft + segment + "[draft]\nsource = \"trained\"\nlayers = 3\n",
         "layers = 3 is for source"},
        {draft + segment + "[draft]\nsize = \"huge\"\n", "size = \"huge\" is not allowed"},
        {draft + segment + "[draft]\nstand_in = \"model\"\n",
         "stand_in = \"model\" is not allowed"},
        {draft + segment + "[draft]\npart = \"x\"\n", "part = \"x\" is for source = \"trained\""},
        {draft + chain + kGrows + "[exit]\nhead = \"none\"\n", "head = \"none\" is not allowed"},
        {draft + segment + "[draft]\nsource = \"first-layers\"\nlayers = 2.5\n", "layers = 2.5"},
        {draft + segment + "[draft]\nskip_ratio = 0.5\n", "skip_ratio = 0.5 is for source"},
        {draft + segment + "[draft]\nsource = \"skip-layers\"\nskip = \"attn:x\"\n", "attn:x"},
        {draft + segment + "[draft]\nthreshold_adapts = true\n",
         "threshold_adapts = true needs confidence_min, or reach_min of at least 0.01"},
        {draft + segment + "[draft]\nsource = \"skip-layers\"\ninterval = 8\n",
         "interval = 8 is for choose = \"programme\""},
        {draft + segment +
             "[draft]\nsource = \"skip-layers\"\nchoose = \"programme\"\nwhole_text = false\n",
         "whole_text = false must be true with choose"},
        {draft + segment +
             "[draft]\nsource = \"skip-layers\"\nchoose = \"search\"\nwhole_text = false\n",
         "whole_text = false must be true with choose = \"search\""},
        {draft + segment +
             "[draft]\nsource = \"skip-layers\"\nchoose = \"search\"\nskip = \"mlp:1\"\n",
         "skip = \"mlp:1\" is found by choose = \"search\""},
        {draft + segment + "[draft]\nsource = \"skip-layers\"\nwindow = 8\n",
         "window = 8 is for choose = \"search\""},
        {draft + segment +
             "[draft]\nsource = \"skip-layers\"\nchoose = \"programme\"\nstate = \"x\"\n",
         "state = \"x\" is for choose = \"search\""},
        {draft + segment +
             "[draft]\nsource = \"skip-layers\"\nchoose = \"programme\"\noptimise_share = 0.5\n",
         "optimise_share = 0.5 is for choose = \"search\""},
        {draft + segment + "[draft]\nsource = \"skip-layers\"\nchoose = \"search\"\nwindow = 129\n",
         "window = 129 must be"},
        {draft + segment + "[draft]\nchoose = \"search\"\n",
         "choose = \"search\" is for source = \"skip-layers\""},
        {draft + stage("correct") + chain +
             "[draft]\nsource = \"skip-layers\"\nexit_alternatives = 2\nchoose = \"search\"\n",
         "choose = \"search\" is for a draft without a stage \"correct\""},
        {draft + segment + "[draft]\nown_alternatives = 1\n", "needs a model to name runners-up"},
        {draft + segment + "[draft]\ndraws = true\n[acceptance]\nrule = \"rejection\"\n",
         "needs a model to draw from"},
        {draft + segment + "[draft]\nsource = \"first-layers\"\ndraws = true\n",
         "draws = true is for [acceptance] rule = \"rejection\", this is \"coupled\""},
        {draft + segment +
             "[draft]\nsource = \"first-layers\"\ndraws = true\n[acceptance]\nrule = "
             "\"unverified\"\n",
         "this is \"unverified\""},
        {draft + segment + "[draft]\ndraw_top = 33\n", "must be a whole number from 1 to 32"},
        {draft + segment + "[draft]\nadaptive = true\npace = \"ahead\"\n", "is for pace"},
        {draft + segment + "[draft]\nthompson = true\npace = \"ahead\"\n",
         "thompson = true is for pace = \"sequential\""},
        {draft + segment + "[draft]\nthompson = true\nadaptive = true\n",
         "thompson = true is another rule for the length than adaptive = true"},
        {draft + segment + "[draft]\nthompson_decay = 1.5\n", "thompson_decay = 1.5"},
        {draft + segment + "[draft]\nwhile_worth = true\n", "[schedule] controller"},
        {draft + segment + "[draft]\nmin_ngram = 3\nmax_ngram = 2\n",
         "min_ngram = 3 is greater than max_ngram 2"},
        {draft + segment + "[draft]\nmax_ngram = 17\n", "must be a whole number from 1 to 16"},
        {draft + stage("early-verify", "exit = true") + stage("final-verify") + kGrows,
         "goes without saying for role = \"early-verify\""},
        {stage("segment", "process = \"\""), "process = \"\" is empty"},
        {stage("final-verify", "segments = 2"), "there is one \"final-verify\" only"},
        {draft + draft + segment + "[draft]\n", "is used twice"},
        {segment + "[acceptance]\nrule = \"trust\"\n", "rule = \"trust\" is not allowed"},
    };
    for (const auto& one : cases) {
        CAPTURE(one.text);
        CAPTURE(one.what);
        const std::string what = error_of(one.text);
        CAPTURE(what);
        CHECK(contains(what, one.what));
    }
}

TEST_CASE("every source of a draft accepts every stop rule that its pace has") {
    const char* const sources[] = {"prompt-lookup",
                                   "first-layers",
                                   "prompt-lookup+first-layers",
                                   "skip-layers",
                                   "skip-layers\"\nchoose = \"programme",
                                   "skip-layers\"\nchoose = \"search",
                                   "trained",
                                   "prompt-lookup+trained",
                                   "eagle",
                                   "prompt-lookup+eagle",
                                   "model\"\nmodel = \"x.gguf"};
    const char* const rules[] = {"confidence_min = 0.6\n", "reach_min = 0.8\n",
                                 "confidence_min = 0.6\nthreshold_adapts = true\n",
                                 "reach_min = 0.8\nthreshold_adapts = true\n"};
    const char* const in_turns[] = {"adaptive = true\n", "thompson = true\nthompson_decay = 0.8\n"};
    for (const char* source : sources) {
        CAPTURE(source);
        const std::string from = std::string{"[draft]\nsource = \""} + source + "\"\n";
        const std::string pearl = stage("draft") + stage("segment") + from;
        const std::string fold = kFold + from + "exit_alternatives = 2\n";
        for (const char* rule : rules) {
            CAPTURE(rule);
            (void)config_of(pearl + rule);
            (void)config_of(pearl + rule + "pace = \"ahead\"\n");
            (void)config_of(fold + rule + "pace = \"ahead\"\n");
        }
        for (const char* rule : in_turns) {
            CAPTURE(rule);
            (void)config_of(pearl + rule);
            CHECK(contains(error_of(pearl + rule + "pace = \"ahead\"\n"), "is for pace"));
        }
        CHECK(contains(error_of(pearl + "probe = true\n"), "probe"));
    }
}

TEST_CASE("the schedule follows the draft's pace unless it is given") {
    const auto options = [](const std::string& rest) {
        return dispatch_options(
            config_of(stage("draft") + stage("segment", "segments = 3") + rest));
    };
    CHECK(options("[draft]\n").start == StartRule::Sequential);
    CHECK(options("[draft]\n").batches_in_flight_max == 1);
    const DispatchOptions ahead = options("[draft]\npace = \"ahead\"\n");
    CHECK(ahead.start == StartRule::AtOnce);
    CHECK(ahead.batches_in_flight_max == 3);
    CHECK(options("[draft]\npace = \"ahead\"\n[schedule]\nmode = \"sequential\"\n").start ==
          StartRule::Sequential);
    const DispatchOptions lockstep = options("[draft]\npace = \"lockstep\"\n");
    CHECK(lockstep.start == StartRule::Lockstep);
    CHECK(lockstep.proposal_wait == Micros{200'000});
    const DispatchOptions set = options(
        "[draft]\n[schedule]\nshape = \"tree\"\nrows_max = 9\ndraft_wait_us = 7\n"
        "requests_max = 3\nreach_min = 0.25\n");
    CHECK(set.shape == BatchShape::Tree);
    CHECK(set.rows_max == 9);
    CHECK(set.proposal_wait == Micros{7});
    CHECK(set.requests_max == 3);
    CHECK(set.verify_reach_min == 0.25F);
}

TEST_CASE("every method's assignments come out of their bytes as they went in") {
    for (const Method& method : methods()) {
        CAPTURE(std::string{method.name});
        const PipelineConfig config = method_config(method.name).value();
        const Placement placed = place(config, 30, {0, 1}).value();
        for (const PlacedProcess& process : placed.processes) {
            const StageAssignment sent =
                assignment_of(process, placed, config,
                              {.model = {.model = "x.gguf"},
                               .parts = {.draft = "d.gguf", .heads = "heads.safetensors"}});
            const std::vector<std::byte> bytes = encode(sent);
            const Result<StageAssignment> got = decode_assignment(bytes);
            REQUIRE(got.ok());
            CHECK(encode(got.value()) == bytes);
            CHECK(got.value().parts.draft == "d.gguf");
            CHECK(got.value().parts.heads == "heads.safetensors");
            CHECK(got.value().dispatch.proposal_wait == sent.dispatch.proposal_wait);
            CHECK(got.value().draft.growth.exit_alternatives ==
                  sent.draft.growth.exit_alternatives);
            REQUIRE(got.value().exit.has_value() == config.exit.has_value());
            if (config.exit) CHECK(got.value().exit->options.gate == config.exit->options.gate);
            CHECK(!decode_assignment(std::span{bytes}.first(bytes.size() - 1)).ok());
        }
    }
}

TEST_CASE("an assignment with a value out of its range is refused by the field's name") {
    StageAssignment assignment;
    assignment.stages = {{StageId{1}, StageRole::Segment, {0, 7}}};
    assignment.exit.emplace();
    CHECK(decode_assignment(encode(assignment)).ok());
    const auto refusal = [&](auto change) {
        StageAssignment wrong = assignment;
        change(wrong);
        const Result<StageAssignment> got = decode_assignment(encode(wrong));
        REQUIRE(!got.ok());
        CHECK(got.error().code == Errc::Protocol);
        return got.error().what;
    };
    using A = StageAssignment;
    CHECK(contains(refusal([](A& a) { a.draft.growth.gamma = 33; }),
                   "gamma = 33, must be a whole number from 1 to 32"));
    CHECK(
        contains(refusal([](A& a) { a.draft.growth.draft_reach_min = -1.0F; }), "reach_min = -1,"));
    CHECK(contains(refusal([](A& a) { a.exit->options.top = 9; }), "top = 9,"));
    CHECK(contains(refusal([](A& a) { a.exit->head = static_cast<ExitHead>(4); }), "head = 4,"));
    CHECK(contains(refusal([](A& a) { a.dispatch.rows_max = 0; }), "rows_max = 0,"));
    CHECK(contains(refusal([](A& a) { a.dispatch.prefill_rows = 513; }), "prefill_rows = 513,"));
    CHECK(contains(refusal([](A& a) { a.stages[0].rows_max = 63; }), "rows = 63,"));
    CHECK(contains(refusal([](A& a) { a.stages[0].id = StageId{0}; }), "id = 0,"));
    CHECK(contains(refusal([](A& a) { a.segments = 65; }), "segments = 65,"));
    CHECK(contains(refusal([](A& a) { a.cores = {0, -1}; }), "core = -1,"));
    CHECK(contains(refusal([](A& a) { a.model.dtype = std::string(5000, 'x'); }), "a count over"));
}

TEST_CASE("an assignment with any byte changed is refused, or is one that can be sent on") {
    const PipelineConfig config = method_config("four-stages").value();
    const Placement placed = place(config, 30, {0, 1}).value();
    const std::vector<std::byte> good =
        encode(assignment_of(placed.processes[0], placed, config, {}));
    int refused = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
        CAPTURE(at);
        for (const unsigned mask : {0x01U, 0x80U, 0xffU}) {
            std::vector<std::byte> bytes = good;
            bytes[at] ^= static_cast<std::byte>(mask);
            const Result<StageAssignment> got = decode_assignment(bytes);
            if (got.ok()) CHECK(decode_assignment(encode(got.value())).ok());
            refused += got.ok() ? 0 : 1;
        }
    }
    CHECK(refused > static_cast<int>(good.size()) / 2);
}

TEST_CASE("exit heads are the target's own, a short list of it, or the same noise every time") {
    ModelConfig model;
    model.dim = 8;
    model.vocab_size = 100;
    constexpr ExitPlace kBehind2{.last_layer = 2, .at_exit = true};
    ExitConfig exit{.options = {.sends_candidates = true}};
    const ExitHeads lens = exit_heads(exit, model, {}, kBehind2, {StageId{3}});
    CHECK(lens.final_head);
    CHECK(lens.heads.empty());
    CHECK(lens.options->head == HeadId::Final);
    CHECK(lens.options->candidates_to == std::vector{StageId{3}});
    exit.short_list = 10;
    const ExitHeads brief = exit_heads(exit, model, {}, kBehind2, {});
    REQUIRE(brief.heads.size() == 1);
    CHECK(!brief.final_head);
    CHECK(brief.options->head == HeadId{1});
    CHECK(brief.heads[0].tokens.size() == 10);
    exit.head = ExitHead::Random;
    const ExitHeads noise = exit_heads(exit, model, {}, kBehind2, {});
    CHECK(noise.heads[0].transform.size() == 64);
    CHECK(noise.heads[0].transform == exit_heads(exit, model, {}, kBehind2, {}).heads[0].transform);
    exit.ahead = 2;
    const ExitHeads last = exit_heads(exit, model, {}, {.last_layer = 4, .last = true}, {});
    CHECK(last.options->ahead == std::vector{HeadId{1}, HeadId{2}});
    CHECK(last.heads[0].transform != last.heads[1].transform);
    CHECK(!exit_heads(exit, model, {}, {.last_layer = 4}, {}).options.has_value());
}

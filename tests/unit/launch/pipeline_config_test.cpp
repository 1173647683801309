// The TOML files of configs/: what they mean, and how wrong ones are refused.
#include "launch/config/pipeline_config.hpp"

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/load/gpu_check.hpp"
#include "launch/placement/placement.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/launch/config_of_file.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using paceline::testing::config_of_file;
using paceline::testing::contains;

namespace {

constexpr const char* kTwoSegments = R"(
[pipeline]
name = "two"
[[stage]]
name = "front"
role = "segment"
layers = [0, 10]
cores = [1]
[[stage]]
name = "back"
role = "segment"
layers = [10, 30]
)";

std::string error_of(const std::string& text) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    REQUIRE(!config.ok());
    return config.error().what;
}

std::string placement_error_of(const std::string& text, int layers) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    REQUIRE(config.ok());
    Result<Placement> placed = place(config.value(), layers, {0, 1});
    REQUIRE(!placed.ok());
    return placed.error().what;
}

std::string segment(const std::string& name, const std::string& rest) {
    return "[[stage]]\nname = \"" + name + "\"\nrole = \"segment\"\n" + rest + "\n";
}

}  // namespace

TEST_CASE("two segments come out with their layers and cores, in order") {
    Result<PipelineConfig> config = parse_pipeline_config(kTwoSegments, "two.toml");
    REQUIRE(config.ok());
    CHECK(config.value().name == "two");
    Result<Placement> placed = place(config.value(), 30, {0, 1});
    REQUIRE(placed.ok());
    const Placement& p = placed.value();
    REQUIRE(p.stages.size() == 2);
    REQUIRE(p.processes.size() == 2);
    CHECK(p.stages[0].layers == LayerRange{0, 10});
    CHECK(p.processes[0].cores == std::vector{1});
    CHECK(p.processes[0].threads == 1);
    CHECK(p.stages[1].layers == LayerRange{10, 30});
    CHECK(p.processes[1].cores == std::vector{0, 1});
    CHECK(p.processes[1].threads == 2);
    CHECK(p.verifier() == StageId{2});
    CHECK(!p.draft().has_value());
}

TEST_CASE("every file in configs/ can be read, and fits models of 4 to 80 layers on one core") {
    int files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(testing::source_tree() + "/configs")) {
        if (entry.path().extension() != ".toml") continue;
        CAPTURE(entry.path().string());
        ++files;
        Result<PipelineConfig> config = config_of_file(entry.path().string());
        if (!config.ok()) FAIL(config.error().what);
        for (const int layers : {4, 5, 30, 80}) {
            Result<Placement> placed = place(config.value(), layers, {0});
            if (!placed.ok()) FAIL(placed.error().what);
        }
    }
    CHECK(files >= 4);
}

TEST_CASE("automatic layers are an even share that leaves nothing out") {
    const std::string text =
        segment("a", "") + segment("b", "layers = \"auto\"") + segment("c", "");
    Result<PipelineConfig> config = parse_pipeline_config(text, "auto.toml");
    REQUIRE(config.ok());
    for (int layers = 3; layers < 100; ++layers) {
        Result<Placement> placed = place(config.value(), layers, {0});
        REQUIRE(placed.ok());
        int next = 0;
        for (const PlacedStage& stage : placed.value().stages) {
            CHECK(stage.layers.first == next);
            const int share = stage.layers.last - stage.layers.first;
            CHECK(share >= layers / 3);
            CHECK(share <= layers / 3 + 1);
            next = stage.layers.last;
        }
        CHECK(next == layers);
    }
}

TEST_CASE("fractions meet at the same layer whatever the model's depth") {
    const std::string text =
        segment("a", "layers = [0.0, 0.33]") + segment("b", "layers = [0.33, 1.0]");
    Result<PipelineConfig> config = parse_pipeline_config(text, "parts.toml");
    REQUIRE(config.ok());
    for (int layers = 2; layers < 100; ++layers) {
        CHECK(place(config.value(), layers, {0}).ok());
    }
}

TEST_CASE("a gap, an overlap, a missing end and layers past the end are named with both numbers") {
    CHECK(contains(placement_error_of(
                       segment("a", "layers = [0, 10]") + segment("b", "layers = [12, 30]"), 30),
                   "\"b\": layers [12, 30] leave a gap after \"a\", which ends at layer 10"));
    CHECK(contains(
        placement_error_of(segment("a", "layers = [0, 10]") + segment("b", "layers = [9, 30]"), 30),
        "\"b\": layers [9, 30] overlap with \"a\""));
    CHECK(contains(placement_error_of(segment("a", "layers = [0, 29]"), 30),
                   "end at layer 29, the model has 30"));
    CHECK(contains(placement_error_of(segment("a", "layers = [0, 31]"), 30),
                   "end past the model's 30 layers"));
    CHECK(contains(placement_error_of(segment("a", "layers = [1, 30]"), 30),
                   "do not start at layer 0"));
}

TEST_CASE("more segments than layers is an error, not an empty segment") {
    std::string text;
    for (const char* name : {"a", "b", "c"}) text += segment(name, "");
    CHECK(contains(placement_error_of(text, 2), "are empty for a model of 2 layers"));
}

TEST_CASE("automatic and explicit layers do not mix") {
    CHECK(contains(placement_error_of(segment("a", "") + segment("b", "layers = [15, 30]"), 30),
                   "\"auto\" for 1 of 2 segments"));
}

TEST_CASE("a core that this process may not use is named with the ones it may") {
    CHECK(contains(placement_error_of(segment("a", "cores = [0, 7]"), 30),
                   "cores names core 7, this process may use 0, 1"));
}

TEST_CASE("more threads than cores are refused") {
    CHECK(contains(placement_error_of(segment("a", "cores = [1]\nthreads = 2"), 30),
                   "threads 2 is more than its 1 cores"));
}

TEST_CASE("an unknown key is refused with file, line, key, value and the known ones") {
    const std::string what = error_of(segment("a", "layer = 3"));
    CHECK(contains(what, "test.toml:4: [[stage]] \"a\": layer = 3 is not a known key"));
    CHECK(contains(what,
                   "known: name, role, layers, segments, exit, cores, threads, device, tensor, "
                   "process, node, on_death"));
    CHECK(contains(error_of("[pipe]\nname = \"x\"\n" + segment("a", "")), "pipe"));
}

TEST_CASE("a value that is not allowed is named with what is") {
    CHECK(contains(error_of("[[stage]]\nname = \"a\"\nrole = \"verifier\"\n"),
                   "role = \"verifier\" is not allowed (allowed: \"segment\", \"early-verify\", "
                   "\"final-verify\", \"draft\", \"correct\")"));
    CHECK(contains(error_of(segment("a", "threads = 0")),
                   "threads = 0 must be a whole number from 1"));
    CHECK(contains(error_of(segment("a", "layers = [3, 3]")),
                   "layers = [ 3, 3 ] must be [first, last]"));
    CHECK(contains(error_of(segment("a", "layers = [0.5, 1.5]")), "as fractions"));
    CHECK(contains(error_of(segment("a", "cores = [1, 1]")), "names a core twice"));
    CHECK(contains(error_of(segment("a", "cores = \"all\"")),
                   "cores = \"all\" must be a list of core numbers such as [0, 1], or \"auto\""));
    CHECK(contains(error_of(segment("a", "name = 3")), "test.toml:"));
}

TEST_CASE("drafts and their settings come together") {
    const std::string draft = "[[stage]]\nname = \"d\"\nrole = \"draft\"\n";
    CHECK(contains(error_of(segment("a", "") + draft), "no [draft] table"));
    CHECK(contains(error_of(segment("a", "") + "[draft]\ngamma = 4\n"),
                   "no stage with role = \"draft\""));
    CHECK(contains(error_of(segment("a", "") + draft + "[draft]\ngamma = 33\n"),
                   "[draft] gamma = 33 must be a whole number from 1 to 32"));
    CHECK(contains(error_of(segment("a", "") + draft + "[draft]\nmin_ngram = 5\nmax_ngram = 4\n"),
                   "min_ngram = 5 is greater than max_ngram 4"));
    CHECK(contains(error_of(draft + "[draft]\n"), "0 stages with role = \"segment\""));
    CHECK(contains(error_of(segment("a", "") + draft + "layers = [0, 3]\n[draft]\n"),
                   "this stage is a draft"));
}

TEST_CASE("stage names are unique") {
    CHECK(contains(error_of(segment("a", "") + segment("a", "")), "\"a\" is used twice"));
}

TEST_CASE("a name that is too long for a log, or would break its lines, is refused by field") {
    const std::string longest(64, 'x');
    CHECK(parse_pipeline_config(segment("a", "process = \"" + longest + "\""), "x.toml").ok());
    CHECK(contains(error_of(segment("a", "process = \"" + longest + "x\"")),
                   "process = \"" + longest + "x\" has more than 64 bytes"));
    CHECK(contains(error_of(segment(longest + "x", "")), "has more than 64 bytes"));
    CHECK(contains(error_of(segment("a\\n", "")), "holds a control character"));
    CHECK(
        contains(error_of(segment("a", "process = \"\\u001b[2J\"")), "holds a control character"));
}

TEST_CASE("a process is not called like a stage that lives in another one") {
    CHECK(contains(error_of(segment("a", "process = \"b\"") + segment("b", "")),
                   "[[stage]] \"a\": process = \"b\" is the name of a stage outside of it"));
    CHECK(parse_pipeline_config(segment("a", "process = \"b\"") + segment("b", "process = \"b\""),
                                "x.toml")
              .ok());
}

TEST_CASE("what is no TOML and what cannot be read is said with file and line") {
    CHECK(contains(error_of("[[stage]]\nname = \n"), "test.toml:2"));
    Result<PipelineConfig> missing = config_of_file("/nonexistent/x.toml");
    REQUIRE(!missing.ok());
    CHECK(contains(missing.error().what, "/nonexistent/x.toml: cannot be opened: No such file"));
    CHECK(!config_of_file(testing::source_tree()).ok());
}

TEST_CASE("a hostile file is answered with one short line that no terminal obeys") {
    const std::string draft = "[[stage]]\nname = \"d\"\nrole = \"draft\"\n";
    const std::string long_name(50'000, 'x');
    const struct {
        std::string text;
        const char* what;
    } cases[] = {
        {"", "0 stages with role = \"segment\""},
        {"[[[", "test.toml:1: "},
        {"\n[.a]", "test.toml:2: "},
        {"\n\n[[.a]]", "test.toml:3: "},
        {"[\xC3\xA9]", "test.toml:1: "},
        {"a = [[\xE2\x80\xA8", "test.toml:1: "},
        {"a = 1979-05-27T:\n", "test.toml:1: "},
        {"[" + std::string(70'000, '.') + "]", "test.toml: has 70002 bytes; a TOML file may have"},
        {"a = " + std::string(20'000, '['), "maximum nested value depth"},
        {segment("a", "role = \"segment\""), "test.toml:4: "},
        {"stage = 3", "stage = 3 must be a list of tables: [[stage]]"},
        {segment("a", "") + "[schedule]\nmode = 3\n",
         "mode = 3 is not allowed (allowed: \"at-once\""},
        {"draft = 3\n" + segment("a", ""), "draft = 3 must be a table: [draft]"},
        {segment("a", "layers = [0, 1e300]"), "layers = [ 0, 1.0000000000000001e+300 ] as"},
        {segment("a", "layers = [nan, 1.0]"), "layers = [ nan, 1.0 ] as fractions must be"},
        {segment("a", "layers = 2020-01-01"), "layers = 2020-01-01 must be [first, last]"},
        {segment("a", "layers = [\"x\", {y = 1}]"), "layers = [ \"x\", a table ] must be"},
        {segment("a", "cores = []"), "cores = [] must be a list of core numbers"},
        {segment("a", "cores = [1.0]"), "cores = [ 1.0 ] holds a number that is no core"},
        {segment("a", "device = 7"), "device = 7 must be \"cpu\" or \"cuda:N\""},
        {segment("a", "\"\\u001b[31m\" = 1"), "\\x1b[31m = 1 is not a known key"},
        {segment("\\u001b[2J", ""), "name = \"\\x1b[2J\" holds a control character"},
        {segment(long_name, ""), "xxx...\" has more than 64 bytes"},
        {segment("a", "") + draft + "[draft]\ngamma = 9223372036854775807\n",
         "gamma = 9223372036854775807 must be a whole number from 1 to 32"},
        {segment("a", "") + draft + "[draft]\nreach_min = inf\n", "reach_min = inf must be"},
        {segment("a", "") + draft + "[draft]\nsource = \"model\"\nmodel = \"" + long_name + "\"\n",
         "has more than 4096 bytes"},
        {segment("a", "") + "[supervision]\nbackoff_ms = [1, \"x\"]\n",
         "backoff_ms = [ 1, \"x\" ] must be a list of numbers"},
    };
    for (const auto& one : cases) {
        CAPTURE(std::string{one.what});
        const std::string what = error_of(one.text);
        CAPTURE(what);
        CHECK(contains(what, one.what));
        CHECK(what.size() < 500);
        CHECK(what.find_first_of("\n\x1b") == std::string::npos);
    }
}

TEST_CASE("an unknown key that is nearly a known one is answered with that one") {
    CHECK(contains(error_of(segment("a", "layer = 3")), "did you mean 'layers'?"));
    CHECK(contains(error_of(segment("a", "ondeath = \"stop-run\"")), "did you mean 'on_death'?"));
    CHECK(contains(error_of("[supervison]\n" + segment("a", "")), "did you mean 'supervision'?"));
    CHECK(!contains(error_of(segment("a", "zzzzzzzz = 3")), "did you mean"));
}

TEST_CASE("the supervision table has the documented defaults, and takes what is in range") {
    const PipelineConfig plain = parse_pipeline_config(segment("a", ""), "x.toml").value();
    CHECK(plain.supervision.restarts_max == 5);
    CHECK(plain.supervision.backoff.size() == 4);
    CHECK(plain.supervision.drain == std::chrono::seconds{30});
    CHECK(!plain.supervision.checksums);
    CHECK(plain.supervision.longest_recovery() == std::chrono::seconds{180});
    const Result<PipelineConfig> set =
        parse_pipeline_config(segment("a", "") +
                                  "[supervision]\nrestarts_max = 0\nrestart_period_s = 0.5\n"
                                  "backoff_ms = [1, 20]\nhang_limit_s = 0\nstart_limit_s = 0.001\n"
                                  "drain_s = 2\nchecksums = true\n",
                              "x.toml");
    REQUIRE(set.ok());
    const SupervisionConfig& s = set.value().supervision;
    CHECK(s.restarts_max == 0);
    CHECK(s.restart_period == std::chrono::milliseconds{500});
    CHECK(s.backoff == std::vector{std::chrono::milliseconds{1}, std::chrono::milliseconds{20}});
    CHECK(s.hang_limit == std::chrono::milliseconds{0});
    CHECK(s.start_limit == std::chrono::milliseconds{1});
    CHECK(s.longest_recovery() == std::chrono::milliseconds{60'001});
    CHECK(s.drain == std::chrono::seconds{2});
    CHECK(s.checksums);
}

TEST_CASE("a supervision value out of range is refused with the range") {
    const auto with = [](const char* line) {
        return error_of(segment("a", "") + "[supervision]\n" + line + "\n");
    };
    CHECK(contains(with("restarts_max = -1"), "restarts_max = -1 must be a whole number from 0"));
    CHECK(contains(with("start_limit_s = 0"), "must be a number from 0.001 to 86400"));
    CHECK(contains(with("drain_s = nan"), "must be a number from 0 to 86400"));
    CHECK(contains(with("drain_s = \"long\""), "drain_s = \"long\" must be a number"));
    CHECK(contains(with("backoff_ms = []"), "must have 1 to 32 numbers"));
    CHECK(contains(with("backoff_ms = [-5]"), "milliseconds from 0"));
    CHECK(contains(with("checksums = 1"), "must be true or false"));
    CHECK(contains(with("drain = 3"), "did you mean 'drain_s'?"));
}

TEST_CASE("a segment cannot restart alone, and a policy that does not exist is named") {
    CHECK(contains(error_of(segment("a", "on_death = \"restart-alone\"")),
                   "on_death = \"restart-alone\" is for stages that hold nothing of the text"));
    CHECK(contains(error_of(segment("a", "on_death = \"pray\"")),
                   "(allowed: \"stop-run\", \"restart-alone\", \"rebuild-chain\")"));
}

TEST_CASE("stages that name the same process share it, with the gravest of their policies") {
    const std::string text = "[[stage]]\nname = \"d\"\nrole = \"draft\"\nprocess = \"both\"\n" +
                             segment("a", "process = \"both\"\nthreads = 2") + "[draft]\n";
    const Result<PipelineConfig> config = parse_pipeline_config(text, "x.toml");
    REQUIRE(config.ok());
    const Result<Placement> placed = place(config.value(), 30, {0, 1, 2});
    REQUIRE(placed.ok());
    REQUIRE(placed.value().processes.size() == 1);
    const PlacedProcess& process = placed.value().processes[0];
    CHECK(process.name == "both");
    CHECK(process.id() == StageId{1});
    CHECK(process.stages == std::vector{StageId{1}, StageId{2}});
    CHECK(process.threads == 2);
    CHECK(process.on_death == OnDeath::RebuildChain);
    CHECK(placed.value().stage(StageId{2}).on_death == OnDeath::RestartAlone);
}

TEST_CASE("stages that share a process and name two numbers of threads are refused") {
    CHECK(contains(placement_error_of(segment("a", "process = \"p\"\nthreads = 1") +
                                          segment("b", "process = \"p\"\nthreads = 2"),
                                      30),
                   "\"b\": threads differs from that of \"a\", with which it shares the process"));
}

TEST_CASE("a GPU belongs to one process") {
    const std::string gpu = "device = \"cuda:0\"\n";
    CHECK(contains(error_of(segment("a", gpu) + segment("b", gpu)),
                   "\"b\": device = \"cuda:0\" is that of \"a\" too"));
    const std::string shared = gpu + "process = \"p\"\n";
    CHECK(parse_pipeline_config(segment("a", shared) + segment("b", shared), "x.toml").ok());
    const std::string elsewhere = gpu + "node = \"other\"\n";  // has a GPU of this name too
    CHECK(parse_pipeline_config(segment("a", gpu) + segment("b", elsewhere), "x.toml").ok());
    CHECK(contains(error_of(segment("a", "device = \"cuda:\"")), "must be \"cpu\" or \"cuda:N\""));
    CHECK(contains(error_of(segment("a", "device = \"gpu\"")), "must be \"cpu\" or \"cuda:N\""));
}

TEST_CASE("a target is on CPUs or on GPUs, its drafts are anywhere") {
    const std::string gpu = "device = \"cuda:0\"\n";
    CHECK(contains(error_of(segment("a", "") + segment("b", gpu)),
                   "\"b\": device = \"cuda:0\", that of \"a\" is \"cpu\"; a CPU and a GPU do "
                   "not give equal bits"));
    CHECK(parse_pipeline_config(segment("a", gpu) + segment("b", "device = \"cuda:1\""), "x.toml")
              .ok());
    const std::string draft =
        "[[stage]]\nname = \"d\"\nrole = \"draft\"\n[draft]\nsource = \"prompt-lookup\"\n";
    CHECK(parse_pipeline_config(segment("a", gpu) + draft, "x.toml").ok());
}

TEST_CASE("a stage is exact whatever it runs on: there is no key for it") {
    const std::string off = "device = \"cuda:0\"\nexact = false\n";
    CHECK(contains(error_of(segment("a", off)), "exact = false is not a known key"));
    const Result<PipelineConfig> gpu =
        parse_pipeline_config(segment("a", "device = \"cuda:0\""), "x.toml");
    REQUIRE(gpu.ok());
    CHECK(target_device(gpu.value()).exact);
}

TEST_CASE("words for devices") {
    CHECK(parse_device("cpu") == Device{});
    CHECK(parse_device("cuda:12") == Device{12});
    CHECK(parse_device("cuda:1,cuda:0").value().gpus() == std::vector<int>{1, 0});
    for (const char* word : {"", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:1x", "CPU", "cuda:0,",
                             "cuda:0,cpu", "cpu,cuda:0", "cuda:0,1"}) {
        CAPTURE(word);
        CHECK(!parse_device(word).has_value());
    }
}

TEST_CASE("a GPU that is not there is refused with what is") {
    const PipelineConfig config =
        parse_pipeline_config(segment("a", "device = \"cuda:1\""), "x.toml").value();
    const Status none = check_gpus(config, {.names = {}, .why_none = "no driver"});
    REQUIRE(!none.ok());
    CHECK(none.error().code == Errc::BadArgument);
    CHECK(contains(none.error().what,
                   "x.toml: [[stage]] \"a\": device = \"cuda:1\" does not exist; "
                   "available: only the CPU (no driver)"));
    const Status other = check_gpus(config, {.names = {"H200"}, .why_none = ""});
    REQUIRE(!other.ok());
    CHECK(contains(other.error().what, "does not exist; available: cuda:0 (H200)"));
    CHECK(check_gpus(config, {.names = {"H200", "H100"}, .why_none = ""}).ok());
    const PipelineConfig cpu = parse_pipeline_config(segment("a", ""), "x.toml").value();
    CHECK(check_gpus(cpu, {}).ok());
}

TEST_CASE("a client's gamma is bounded by what the method proposes") {
    CHECK(gamma_max(method_config("autoregressive").value()) == 0);
    PipelineConfig drafted = method_config("prompt-lookup").value();
    drafted.draft->growth.gamma = 5;
    CHECK(gamma_max(drafted) == 5);
    drafted.schedule.options.rows_max = 4;
    CHECK(gamma_max(drafted) == 3);
    PipelineConfig early = method_config("adadecode").value();
    early.exit->options.early_max = 2;
    CHECK(gamma_max(early) == 2);
}

// [self_draft]: what is refused, each with file, key and value.
#include "launch/config/self_draft_config.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launch/base/run_log.hpp"
#include "launch/config/methods.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/load/search_plan.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "model/weights/unfinished_file.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr const char* kStage = "[[stage]]\nname = \"target\"\nrole = \"segment\"\n";

std::string file_with(const std::string& self_draft, const std::string& rest = "") {
    return kStage + rest + "[self_draft]\n" + self_draft;
}

/// Of a file that is refused before a model is known.
std::string error_of(const std::string& text) {
    Result<PipelineConfig> config = parse_pipeline_config(text, "test.toml");
    REQUIRE(!config.ok());
    CHECK(config.error().what.starts_with("test.toml"));
    return config.error().what;
}

SelfDraftConfig config_of(const std::string& self_draft) {
    Result<PipelineConfig> config =
        parse_pipeline_config(file_with(self_draft, "[schedule]\nshape = \"tree\"\n"), "test.toml");
    if (!config.ok()) FAIL(config.error().what);
    return *config.value().self_draft;
}

/// Of a configuration that does not fit the target.
std::string plan_error_of(const std::string& self_draft) {
    const Result<SelfDraftPlan> plan =
        plan_self_draft(config_of(self_draft), {}, testing::open_fixture("tiny-chat"));
    REQUIRE(!plan.ok());
    return plan.error().what;
}

bool contains(const std::string& text, const std::string& part) {
    const bool is_there = text.find(part) != std::string::npos;
    if (!is_there) MESSAGE(text);
    return is_there;
}

/// A file of its own, gone at the end.
struct StateFile {
    explicit StateFile(const std::string& text) { std::ofstream{path} << text; }
    ~StateFile() { std::filesystem::remove(path); }
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;
    std::string path = std::filesystem::temp_directory_path() /
                       ("self_draft_config_test." + std::to_string(::getpid()));
};

/// An empty folder; the destructor removes it with its files.
struct StateFolder {
    StateFolder() { std::filesystem::create_directory(path); }
    ~StateFolder() { std::filesystem::remove_all(path); }
    StateFolder(const StateFolder&) = delete;
    StateFolder& operator=(const StateFolder&) = delete;
    [[nodiscard]] std::map<std::string, std::string> files() const {
        std::map<std::string, std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator{path}) {
            std::ifstream file{entry.path()};
            found[entry.path().filename()] = {std::istreambuf_iterator<char>{file}, {}};
        }
        return found;
    }
    std::filesystem::path path = std::filesystem::temp_directory_path() /
                                 ("self_draft_config_test.folder." + std::to_string(::getpid()));
};

/// The plan of [draft] with `search`, for a model of 2 layers.
Result<SearchTrialOptions> draft_search(const SearchConfig& search) {
    return plan_search({.ratio = 0.45, .keep_first = 0, .keep_last = 0}, search, 2, "[draft]");
}

std::string search_with_state(const std::string& path) {
    return "source = \"skip\"\nchoose = \"search\"\nkeep_first = 0\nkeep_last = 0\nstate = \"" +
           path + "\"\n";
}

/// A state that a search of `layers` layers has kept.
std::string state_of(int layers) {
    return SkipSearch{{.layers = layers, .ratio = 0.45, .keep_first = 0, .keep_last = 0}}.encode();
}

}  // namespace

TEST_CASE("values of [self_draft] out of their range are refused with file, key, value and range") {
    struct Case {
        const char* text;
        const char* names;
    };
    for (const auto& [text, names] : {
             Case{"source = \"both\"\n", "source"},
             Case{"head = \"kangaroo\"\n", "head"},
             Case{"head = \"adapter\"\nprobe = true\n", "probe"},
             Case{"source = \"skip\"\nhead = \"adapter\"\n", "head"},
             Case{"gamma = 0\n", "gamma = 0"},
             Case{"gamma = 1000\n", "gamma = 1000"},
             Case{"exit = 0\n", "exit"},
             Case{"exit = -1\n", "exit = -1"},
             Case{"exit = 1.5\n", "exit"},
             Case{"confidence_min = 1.5\n", "confidence_min = 1.5"},
             Case{"reach_min = -0.5\n", "reach_min = -0.5"},
             Case{"acceptance_target = 2\n", "acceptance_target = 2"},
             Case{"thompson_decay = -1\n", "thompson_decay = -1"},
             Case{"threshold_adapts = true\n",
                  "threshold_adapts = true needs confidence_min, or reach_min of at least 0.01"},
             Case{"head = \"best\"\n", "head"},
             Case{"short_list = -1\n", "short_list = -1"},
             Case{"short_list = \"all\"\n", "short_list"},
             Case{"tree = \"paper\"\n", "tree"},
             Case{"skip_ratio = 0.5\n", "skip_ratio"},
             Case{"window = 8\n", "window"},
             Case{"source = \"skip\"\nexit = 4\n", "exit"},
             Case{"source = \"skip\"\nhead = \"trained\"\n", "head"},
             Case{"source = \"skip\"\nprobe = true\n", "probe"},
             Case{"source = \"skip\"\nskip_ratio = 1.5\n", "skip_ratio = 1.5"},
             Case{"source = \"skip\"\nkeep_first = -1\n", "keep_first = -1"},
             Case{"source = \"skip\"\nstate = \"x\"\n", "state"},
             Case{"source = \"skip\"\ninterval = 4\n", "interval"},
             Case{"source = \"skip\"\nchoose = \"search\"\nwindow = 129\n", "window = 129"},
             Case{"source = \"skip\"\nchoose = \"programme\"\nkeep_first = 0\n", "keep_first"},
             Case{"gama = 4\n", "did you mean 'gamma'?"},
         }) {
        CAPTURE(text);
        CHECK(contains(error_of(file_with(text)), names));
    }
}

TEST_CASE("a skip set that cannot be read is refused with its text") {
    for (const char* set : {"everything", "attn:", "attn:x", "attn:5-3", "mlp:-1", "attn:1 heads:2",
                            "attn:1,,2", ""}) {
        CAPTURE(set);
        const std::string text =
            file_with("source = \"skip\"\nskip = \"" + std::string{set} + "\"\n");
        CHECK(contains(error_of(text), "skip"));
    }
    CHECK(
        contains(error_of(file_with("source = \"skip\"\nchoose = \"search\"\nskip = \"mlp:1\"\n")),
                 "is found by choose = \"search\""));
}

TEST_CASE("who proposes beside a target that drafts for itself is refused by name") {
    CHECK(contains(error_of(file_with("", "[[stage]]\nname = \"d\"\nrole = \"draft\"\n[draft]\n")),
                   "has a [draft] and a [self_draft] table"));
    const std::string two = "[[stage]]\nname = \"back\"\nrole = \"segment\"\n";
    CHECK(contains(error_of("[[stage]]\nname = \"a\"\nrole = \"early-verify\"\n"
                            "[[stage]]\nname = \"b\"\nrole = \"final-verify\"\n"
                            "[exit]\nproposes = true\n[self_draft]\n"),
                   "has an [exit] and a [self_draft] table"));
    CHECK(contains(error_of(file_with("source = \"skip\"\n", two)),
                   "source = \"skip\" runs through all layers in one process"));
    CHECK(parse_pipeline_config(file_with("source = \"exit\"\n", two), "test.toml").ok());
    CHECK(contains(error_of(file_with("source = \"skip\"\ntree = \"paper\"\n",
                                      "[schedule]\nshape = \"chain\"\n")),
                   "tree needs [schedule] shape = \"tree\""));
}

TEST_CASE("layers that the target has not are refused by key, value and number of layers") {
    CHECK(contains(plan_error_of("exit = 2\n"), "exit = 2: the target has 2 layers"));
    CHECK(contains(plan_error_of("exit = 40\n"), "exit = 40: the target has 2 layers"));
    const std::string beyond = plan_error_of("source = \"skip\"\nskip = \"attn:1 mlp:7\"\n");
    CHECK(contains(beyond, "skip = \"attn:1 mlp:7\""));
    CHECK(contains(beyond, "7"));
    const std::string nothing = plan_error_of("source = \"skip\"\n");
    CHECK(contains(nothing, "skip_ratio = 0.45 leaves nothing to skip of 2 layers"));
    CHECK(contains(nothing, "the first 1 and last 1 of which are kept"));
    CHECK(contains(plan_error_of("source = \"skip\"\nskip_ratio = 0\nkeep_first = 0\n"),
                   "skip_ratio = 0 leaves nothing to skip"));
}

TEST_CASE(
    "a short list is a head of its own with the first ids, and none if it has the whole "
    "vocabulary") {
    const ModelFile target = testing::open_fixture("tiny-chat");
    const auto plan_of = [&](const std::string& text) {
        Result<SelfDraftPlan> plan = plan_self_draft(config_of(text), {}, target);
        if (!plan.ok()) FAIL(plan.error().what);
        return std::move(plan).value();
    };
    for (const std::string source : {"exit = 1\n", "source = \"skip\"\nskip = \"mlp:1\"\n"}) {
        CAPTURE(source);
        const SelfDraftPlan brief = plan_of(source + "short_list = 10\n");
        REQUIRE(brief.heads.size() == 1);
        CHECK(brief.heads[0].transform.empty());
        CHECK(brief.heads[0].tokens == std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
        CHECK(brief.options.head == HeadId{1});
        CHECK(!brief.final_head);
        const int all = target.config().vocab_size;
        for (const int count : {0, all, all + 1}) {
            const SelfDraftPlan whole =
                plan_of(source + "short_list = " + std::to_string(count) + "\n");
            CHECK(whole.heads.empty());
            CHECK(whole.options.head == HeadId::Final);
        }
    }
}

TEST_CASE("the adapter of an exit is given to the backend, and an exit without one is refused") {
    const ModelFile target = testing::open_fixture("llama-untied-f16");
    const StateFolder folder;
    const PartFiles files{.adapter = folder.path / "adapter.safetensors"};
    test::adapter_of(target, 1, {0, 3, 4, 200, 319}).write(files.adapter);
    const SelfDraftConfig wanted = config_of("exit = 1\nhead = \"adapter\"\n");
    const Result<SelfDraftPlan> plan = plan_self_draft(wanted, files, target);
    REQUIRE(plan.ok());
    REQUIRE(plan.value().adapter.has_value());
    CHECK(plan.value().adapter->tokens == std::vector<TokenId>{0, 3, 4, 200, 319});
    CHECK(plan.value().options.adapter);
    CHECK(plan.value().options.head == HeadId::Adapter);
    CHECK(plan.value().options.exit == 1);
    CHECK(plan.value().heads.empty());
    CHECK(!plan.value().final_head);

    const Result<SelfDraftPlan> deeper =
        plan_self_draft(config_of("exit = 2\nhead = \"adapter\"\n"), files, target);
    REQUIRE(!deeper.ok());
    CHECK(contains(deeper.error().what, "[self_draft] exit = 2 with head = \"adapter\": " +
                                            files.adapter + " has no adapter after layer 2"));
    CHECK(contains(deeper.error().what, "it has one after 1"));
    const Result<SelfDraftPlan> beyond =
        plan_self_draft(config_of("exit = 3\nhead = \"adapter\"\n"), files, target);
    REQUIRE(!beyond.ok());
    CHECK(contains(beyond.error().what, "exit = 3: the target has 3 layers"));

    const Result<SelfDraftPlan> without = plan_self_draft(wanted, {}, target);
    REQUIRE(without.ok());
    CHECK(without.value().options.head == HeadId::Final);
    CHECK(!without.value().options.adapter);
    CHECK(!without.value().adapter.has_value());
}

TEST_CASE("the method kangaroo stops below its threshold, after six tokens at most") {
    const Result<PipelineConfig> config = method_config("kangaroo");
    REQUIRE(config.ok());
    const SelfDraftConfig& self = *config.value().self_draft;
    CHECK(self.source == SelfDraftSource::Exit);
    CHECK(self.head == SelfDraftHead::Adapter);
    CHECK(self.options.gamma == 6);
    CHECK(self.options.confidence_min == doctest::Approx(0.6));
    CHECK(!self.options.threshold_adapts);
    CHECK(self.options.auto_off);
    CHECK(self.exit_of(30) == 15);
}

TEST_CASE("an exit after the first of several segments is refused with the layers that it has") {
    SelfDraftOptions options;
    options.exit = 5;
    CHECK(check_first_segment(options, 5).ok());
    const Status status = check_first_segment(options, 4);
    REQUIRE(!status.ok());
    CHECK(status.error().what == "[self_draft] exit = 5: the first segment has 4 layers");
}

TEST_CASE("the state of a search that is garbage or of another model is refused") {
    for (const std::string& text : {std::string{"garbage"}, std::string{"{}"}, std::string{"[1, 2"},
                                    std::string{}, state_of(30)}) {
        CAPTURE(text);
        const StateFile file{text};
        const std::string what = plan_error_of(search_with_state(file.path));
        CHECK(contains(what, "[self_draft] state = " + file.path));
        CHECK(contains(what, "delete the file to search anew"));
    }
}

TEST_CASE("a draft's search refuses the same states, by its own table") {
    const auto plan_of = [](const std::string& path) { return draft_search({.state = path}); };
    for (const std::string& text : {std::string{"garbage"}, state_of(30)}) {
        const StateFile file{text};
        const auto plan = plan_of(file.path);
        REQUIRE(!plan.ok());
        CHECK(contains(plan.error().what, "[draft] state = " + file.path));
    }
    // Both tables keep one format: what one has found the other may begin with.
    const StateFile file{state_of(2)};
    CHECK(plan_of(file.path).value().state == state_of(2));
}

TEST_CASE("a state that cannot be written is refused with table, key and file before the run") {
    for (const std::string table : {"[draft]", "[self_draft]"}) {
        const Status kept = check_state_kept({.state = "/no/such/folder/state"}, table);
        REQUIRE(!kept.ok());
        CHECK(contains(kept.error().what, table + " state: /no/such/folder/state"));
        CHECK(contains(kept.error().what, "No such file or directory"));
        CHECK(check_state_kept({}, table).ok());
    }
}

TEST_CASE("checking and writing a state leaves the other files of its folder alone") {
    const StateFolder folder;
    std::map<std::string, std::string> files;
    files["found.state"] = state_of(2);
    for (const char* suffix : {".probe", ".new", ".tmp", "~", ".bak"})
        files["found.state" + std::string{suffix}] = std::string{"another file"} + suffix;
    for (const auto& [name, text] : files) std::ofstream{folder.path / name} << text;
    const SearchConfig search{.state = folder.path / "found.state"};
    CHECK(check_state_kept(search, "[draft]").ok());
    CHECK(folder.files() == files);
    draft_search(search).value().save("what was found");
    files["found.state"] = "what was found";
    CHECK(folder.files() == files);
}

TEST_CASE("a state that another process is writing passes the check and is not disturbed") {
    const StateFolder folder;
    const SearchConfig search{.state = folder.path / "found.state"};
    auto other = UnfinishedFile::begin(search.state, UnfinishedFile::Beside::Refuse);
    REQUIRE(other.ok());
    CHECK(check_state_kept(search, "[draft]").ok());
    CHECK(other.value().keep().ok());
    CHECK(folder.files() == std::map<std::string, std::string>{{"found.state", ""}});
}

TEST_CASE("a save that fails during the run is one warning, with file and reason") {
    const StateFolder folder;
    const SearchConfig search{.state = folder.path / "found.state"};
    const auto save = draft_search(search).value().save;
    log_as_stage("draft");
    CHECK(testing::stderr_of([&] { save("first"); }).empty());
    std::filesystem::remove_all(folder.path);
    const std::string said = testing::stderr_of([&] {
        for (int i = 0; i < 3; ++i) save("later");
    });
    CHECK(contains(said, " warning: [draft] state = " + search.state + ": "));
    CHECK(contains(said, "No such file or directory"));
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    std::filesystem::create_directory(folder.path);
    save("again");
    CHECK(folder.files() == std::map<std::string, std::string>{{"found.state", "again"}});
}

TEST_CASE("a ratio gives a fixed set as many sub-layers as a searched one") {
    for (int layers = 3; layers <= 40; ++layers) {
        for (int percent = 0; percent <= 100; ++percent) {
            const SkipConfig skip{.ratio = percent / 100.0};
            const SkipSearch search{{.layers = layers, .ratio = skip.ratio}};
            CAPTURE(layers);
            CAPTURE(percent);
            CHECK(skip.count_of(layers) == search.best().count());
            CHECK(skip.set_of(layers, "[draft]").value() == search.best());
        }
    }
}

TEST_CASE("a search whose ratio leaves one set is refused, and names it") {
    for (const double ratio : {0.0, 1.0}) {  // of 2 layers: no sub-layer, or all 4
        const auto plan =
            plan_search({.ratio = ratio, .keep_first = 0, .keep_last = 0}, {}, 2, "[draft]");
        REQUIRE(!plan.ok());
        CHECK(contains(plan.error().what, fmt::format("[draft] skip_ratio = {}", ratio)));
    }
}

TEST_CASE("the state of an earlier search is taken over, and a missing file is none") {
    const StateFile file{state_of(2)};
    const Result<SelfDraftPlan> plan = plan_self_draft(config_of(search_with_state(file.path)), {},
                                                       testing::open_fixture("tiny-chat"));
    if (!plan.ok()) FAIL(plan.error().what);
    CHECK(plan.value().options.state == state_of(2));
    const Result<SelfDraftPlan> fresh =
        plan_self_draft(config_of(search_with_state(file.path + ".missing")), {},
                        testing::open_fixture("tiny-chat"));
    if (!fresh.ok()) FAIL(fresh.error().what);
    CHECK(fresh.value().options.state.empty());
    CHECK(!std::filesystem::exists(file.path + ".missing"));
}

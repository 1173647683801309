#include "launch/config/exit_config.hpp"

#include <algorithm>
#include <limits>

#include "actors/target/exit_options.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {

namespace {

constexpr int kVocabularyMax = 1 << 24;
constexpr int kAheadMax = 8;

Status read_head(const TomlTable& table, ExitConfig& exit) {
    std::string head = "trained";
    Status s = table.read_choice("head", {"trained", "adapter", "logit-lens", "random"}, head);
    if (head == "adapter") exit.head = ExitHead::Adapter;
    if (head == "logit-lens") exit.head = ExitHead::LogitLens;
    if (head == "random") exit.head = ExitHead::Random;
    if (s.ok()) s = table.read_text("part", exit.part);
    int seed = 1;
    if (s.ok()) s = table.read_int("seed", 0, std::numeric_limits<int>::max(), seed);
    exit.seed = static_cast<std::uint64_t>(seed);
    if (s.ok()) s = table.read_int("short_list", 0, kVocabularyMax, exit.short_list);
    if (!s.ok()) return s;
    return {};
}

Status read_uses(const TomlTable& table, ExitConfig& exit) {
    exit.names_said = table.has("names");
    Status s = table.read_bool("names", exit.names);
    if (s.ok()) s = table.read_int("top", 1, static_cast<int>(kExitTopMax), exit.top);
    if (s.ok()) s = table.read_bool("lockstep", exit.lockstep);
    if (s.ok()) s = table.read_bool("proposes", exit.proposes);
    if (s.ok()) s = table.read_number("gate", 0.0, 1.0, exit.gate);
    if (s.ok()) s = table.read_int("early_max", 1, kGammaMax, exit.early_max);
    if (s.ok()) s = table.read_bool("defers", exit.defers);
    auto limit = static_cast<int>(exit.defer_limit.count());
    if (s.ok()) s = table.read_int("defer_limit_us", 1, 10'000'000, limit);
    exit.defer_limit = std::chrono::microseconds{limit};
    if (s.ok()) s = table.read_int("ahead", 0, kAheadMax, exit.ahead);
    if (s.ok()) s = table.read_int("ahead_top", 1, static_cast<int>(kExitTopMax), exit.ahead_top);
    if (s.ok()) s = table.read_bool("always_on", exit.always_on);
    return s;
}

/// Settings of a use that is not asked for are a misunderstanding.
Status check_uses(const TomlTable& table, const ExitConfig& exit) {
    for (const char* key : {"gate", "early_max", "defers"}) {
        if (!exit.proposes && table.has(key)) {
            return table.error(key, "is for exits that propose (proposes = true)");
        }
    }
    if (!exit.defers && table.has("defer_limit_us")) {
        return table.error("defer_limit_us", "is for exits that defer (defers = true)");
    }
    if (exit.ahead == 0 && table.has("ahead_top")) {
        return table.error("ahead_top", "is for heads that look ahead (ahead = 1 or more)");
    }
    return {};
}

}  // namespace

ExitHead settled_head(ExitHead wished, bool has_adapter, bool has_head) {
    if (wished != ExitHead::Adapter && wished != ExitHead::Trained) return wished;
    if (wished == ExitHead::Adapter && has_adapter) return ExitHead::Adapter;
    return has_head ? ExitHead::Trained : ExitHead::LogitLens;
}

ExitHead ExitConfig::head_behind(int layer) const {
    const auto in = [layer](const std::vector<int>& layers) {
        return std::find(layers.begin(), layers.end(), layer) != layers.end();
    };
    return settled_head(head, in(adapter_layers), in(head_layers));
}

Result<ExitConfig> read_exit(const TomlTable& table) {
    ExitConfig exit;
    Status s = table.allow_only({"head", "part", "seed", "short_list", "names", "top", "lockstep",
                                 "proposes", "gate", "early_max", "defers", "defer_limit_us",
                                 "ahead", "ahead_top", "always_on"});
    if (s.ok()) s = read_head(table, exit);
    if (s.ok()) s = read_uses(table, exit);
    if (s.ok()) s = check_uses(table, exit);
    if (!s.ok()) return s.error();
    return exit;
}

}  // namespace paceline

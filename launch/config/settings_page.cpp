#include "launch/config/settings_page.hpp"

#include "launch/config/field.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {
namespace {

const std::string kExtendsSection =
    "\n## `extends`\n\n"
    "Before the first table: the name of a method, `extends = \"fold\"`, or a file relative to "
    "this "
    "one (its name has a dot or a slash). All settings are those of that file, except for the keys "
    "given here. Tables are merged key by key; a list is replaced as a whole, so that `[[stage]]` "
    "tables here take the place of all stages there. A key cannot be removed: give it its "
    "default.\n";

const std::string kServeSection =
    "\n## `[serve]`\n\n"
    "Options of `paceline serve`, in the words of its command line with `_` for `-`: "
    "`docs/serving.md`. Other commands do not read the table.\n";

/// A section of the page; defaults are those of a default-constructed `Config`.
template <class Config>
std::string section(const std::string& title, const std::string& purpose) {
    Config defaults{};
    std::string text = "\n## `" + title + "`\n\n" + purpose + "\n\n";
    text += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
    for (const Field& field : fields_of(defaults)) {
        text.append("| `").append(field.key).append("` | ").append(type_text(field)).append(" | ");
        text.append(field.default_text.empty() ? value_text(field) : field.default_text);
        text.append(" | ").append(field.sentence).append(" |\n");
    }
    return text;
}

}  // namespace

std::string settings_text() {
    return kExtendsSection + section<PipelineConfig>("[pipeline]", "The pipeline as a whole.") +
           section<StageConfig>(
               "[[stage]]",
               "A stage of the pipeline; segments in the order of their layers. At "
               "least one stage is a segment.") +
           section<DraftConfig>("[draft]",
                                "What draft and correct propose. The table is there exactly if a "
                                "stage has `role = \"draft\"`.") +
           section<SelfDraftConfig>("[self_draft]",
                                    "The first segment drafts for itself, between two "
                                    "verifications; without `[draft]` and "
                                    "`[exit]`.") +
           section<ExitConfig>("[exit]",
                               "The head after the segments that have an exit, and its uses. The "
                               "defaults hold for an `early-verify` stage without this table.") +
           section<ScheduleConfig>("[schedule]", "When the target verifies, and what.") +
           section<AcceptanceRule>("[acceptance]", "Which candidates are accepted.") +
           section<SupervisionConfig>(
               "[supervision]", "What happens to stages that die, hang or load for too long.") +
           kServeSection;
}

}  // namespace paceline

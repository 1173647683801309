#include "launch/base/command.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "launch/base/exit_codes.hpp"
#include "launch/base/nearest_word.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

std::string in_quotes(const std::string& word) {
    return "'" + word + "'";
}

namespace {

/// The innermost command that the line chose.
const CLI::App& chosen_command(const CLI::App& root) {
    const std::vector<CLI::App*> chosen = root.get_subcommands();
    return chosen.empty() ? root : *chosen.front();
}

std::string full_name(const CLI::App& root) {
    const CLI::App& command = chosen_command(root);
    return &command == &root ? root.get_name() : root.get_name() + " " + command.get_name();
}

/// The options that --help shows, with their dashes.
std::vector<std::string> option_names(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_group().empty()) continue;
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
    return names;
}

/// What was probably meant by an option that does not exist; empty if nothing is near.
std::string nearest_option(const CLI::App& command, const std::string& word) {
    const std::vector<std::string> names = option_names(command);
    // The beginning counts most: --temperature is --temp, however much longer it is.
    constexpr std::size_t kTelling = 5;  // two dashes and three letters
    std::string nearest;
    for (const std::string& name : names) {
        const bool begins = word.rfind(name, 0) == 0 || name.rfind(word, 0) == 0;
        const std::size_t shared = std::min(word.size(), name.size());
        if (begins && shared >= kTelling && name.size() > nearest.size()) nearest = name;
    }
    if (!nearest.empty() || word.size() < kTelling) return nearest;
    const std::vector<std::string_view> known{names.begin(), names.end()};
    return std::string{nearest_word(word, known)};
}

std::string unknown_word(const CLI::App& command, const std::string& name, std::string word) {
    if (word.size() < 2 || word.front() != '-') {
        return in_quotes(word) +
               " is one word too many; quotes around a text of several words make it one";
    }
    word.resize(std::min(word.size(), word.find('=')));  // --option=value
    const std::string nearest = nearest_option(command, word);
    return in_quotes(word) + " is not an option of " + name +
           (nearest.empty() ? "" : ", did you mean " + in_quotes(nearest) + "?");
}

/// `word`: nullptr if the line is empty.
std::string unknown_command(const CLI::App& root, const char* word) {
    std::vector<std::string> names;
    for (const CLI::App* one : root.get_subcommands({})) names.push_back(one->get_name());
    const std::vector<std::string_view> known{names.begin(), names.end()};
    if (word == nullptr) return "a command is missing" + known_text("", known);
    return in_quotes(word) + " is not a command" + known_text(word, known);
}

/// An option with no value, too many, or one that it does not take.
std::string wrong_count(const CLI::App& command, const CLI::ParseError& error) {
    const std::string said = error.what();  // begins with the option's name
    std::string name = said.substr(0, said.find_first_of(": "));
    if (name.front() != '-') name = "--" + name;  // of a flag, without its dashes
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr) return said;
    if (option->get_items_expected_max() == 0) return name + " takes no value";
    const std::vector<std::string>& values = option->results();
    if (values.size() < 2)
        return name + " needs a value, " + option->get_type_name() + ": " +
               option->get_description();
    return name + " is given " + std::to_string(values.size()) + " times, " + in_quotes(values[0]) +
           " and " + in_quotes(values[1]) + "; it takes one value";
}

constexpr const char* kRefused = "RefusedOption";

/// CLI11's complaint as a sentence that names option, value and remedy.
std::string sentence(const CLI::App& root, const CLI::ParseError& error, const char* first_word) {
    const CLI::App& command = chosen_command(root);
    const std::string kind = error.get_name();
    if (kind == kRefused) return error.what();
    for (const CLI::App* one : {&command, &root}) {
        const std::vector<std::string> unknown = one->remaining();
        const bool is_option = !unknown.empty() && unknown.front().front() == '-';
        if (unknown.empty() || (one == &root && !is_option)) continue;
        const bool of_root = one == &root;
        return unknown_word(*one, of_root ? root.get_name() : full_name(root), unknown.front());
    }
    if (&command == &root) return unknown_command(root, first_word);
    if (kind == "ArgumentMismatch") return wrong_count(command, error);
    const std::string said = error.what();
    if (kind == "ExcludesError") return said + "; give one of them";
    if (kind == "RequiresError") return said + "; give both, or none";
    return said;
}

/// `first_word`: of the command line, nullptr if it is empty.
int usage_error(const CLI::App& root, const CLI::ParseError& error, const char* first_word) {
    const std::string name = full_name(root);
    std::fprintf(stderr, "%s: %s\nTry: %s --help\n", name.c_str(),
                 visible_lines(sentence(root, error, first_word)).c_str(), name.c_str());
    return kExitUsage;
}

/// Counts more than words that are left over: "-np 4" leaves the 4.
class RefusedOption : public CLI::ValidationError {
public:
    explicit RefusedOption(const std::string& message)
        : CLI::ValidationError{kRefused, message, CLI::ExitCodes::ValidationError} {}
};

}  // namespace

Option& Option::check(const OptionCheck& check) {
    option_->check(check.complaint, check.allowed);
    if (check.spelling) option_->transform(check.spelling);  // runs before all checks
    return *this;
}

Option& Option::show_default() {
    option_->capture_default_str();
    return *this;
}

Option& Option::repeated() {
    // One value each: a second one would swallow the prompt behind it.
    option_->take_all()->expected(1)->allow_extra_args(false);
    return *this;
}

Option& Option::required() {
    option_->required();
    return *this;
}

Option& Option::type_name(const std::string& name) {
    option_->type_name(name);
    return *this;
}

Option& Option::group(const std::string& heading) {
    option_->group(heading);
    return *this;
}

Option& Option::excludes(const std::string& other) {
    option_->excludes(other);
    return *this;
}

Option& Option::needs(const std::string& other) {
    option_->needs(other);
    return *this;
}

Option& Option::tells(bool& given) {
    option_->each([&given](const std::string& /*value*/) { given = true; });
    return *this;
}

bool Option::given() const {
    return option_->count() > 0;
}

std::string Option::give(const std::vector<std::string>& values) {
    try {
        for (const std::string& value : values) option_->add_result(value);
        option_->run_callback();
    } catch (const CLI::ParseError& error) {
        return error.what();
    }
    return {};
}

Option Command::option(const std::string& name) {
    return Option{*app_->get_option(name)};
}

Command Command::add_command(const std::string& name, const std::string& text) {
    return Command{*app_->add_subcommand(name, text)};
}

template <class Value>
Option Command::add_option(const std::string& names, Value& value, const std::string& text) {
    return Option{*app_->add_option(names, value, text)};
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&,
                                    std::vector<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, float&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&,
                                    std::optional<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&);

Option Command::add_flag(const std::string& names, bool& value, const std::string& text) {
    return Option{*app_->add_flag(names, value, text)->disable_flag_override()};
}

Option Command::add_flag_with_value(const std::string& names,
                                    std::optional<std::string>& value,
                                    const std::string& text) {
    const auto set = [&value](const std::string& given) { value = given; };
    return Option{*app_->add_option_function<std::string>(names, set, text)->expected(0, 1)};
}

Option Command::refuse_option(const std::string& name,
                              std::function<std::string(const std::string& value)> complaint) {
    const auto refuse = [complaint = std::move(complaint)](const std::string& value) {
        const std::string message = complaint(value);
        if (!message.empty()) throw RefusedOption(message);
    };
    return Option{*app_->add_option_function<std::string>(name, refuse)->group("")};
}

void Command::footer(const std::string& text) {
    app_->footer(text);
}

bool Command::parsed() const {
    return app_->parsed();
}

CommandLine::CommandLine(const std::string& text, const std::string& name)
    : app_{std::make_unique<CLI::App>(text, name)} {
    app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() {
    return Command{*app_};
}

void CommandLine::add_version(std::string (*version)(), const std::string& text) {
    app_->set_version_flag("--version", version, text);
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::Success& help) {
        return app_->exit(help);
    } catch (const CLI::ParseError& error) {
        return usage_error(*app_, error, argc > 1 ? argv[1] : nullptr);
    }
    return std::nullopt;
}

}  // namespace paceline

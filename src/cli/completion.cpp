// `gnomon completion SHELL`: a script made from the very options the program parses.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/session.hpp"

namespace gnomon::cli {
namespace {

struct Word {
  std::string text, help;
};

struct CommandWords {
  std::string path;  // "plans list"; empty: the program itself
  std::vector<Word> words;
};

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

void collect(const CLI::App& command, const std::string& path, std::vector<CommandWords>& all) {
  CommandWords entry{path, {}};
  const auto subcommands = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subcommands) entry.words.push_back({sub->get_name(), first_line(sub->get_description())});
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      entry.words.push_back({"--" + name, first_line(option->get_description())});
    }
  }
  all.push_back(std::move(entry));
  for (const CLI::App* sub : subcommands)
    collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), all);
}

std::string joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : " ") + word.text;
  return text;
}

std::string escaped(const std::string& text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// Two words of a path are enough: no command nests deeper.
std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string script = R"(# bash completion for gnomon: source it, or put it into a bash-completion folder
_gnomon() {
  local current=${COMP_WORDS[COMP_CWORD]} words
  COMPREPLY=()
  case "${COMP_WORDS[1]:-} ${COMP_WORDS[2]:-}" in
)";
  const auto row = [&](const std::string& pattern, const CommandWords& command) {
    script += fmt::format("    {}) words=\"{}\" ;;\n", pattern, joined(command.words));
  };
  for (const CommandWords& command : commands) {  // the longer paths first: case takes the first match
    if (command.path.find(' ') != std::string::npos) row(fmt::format("\"{}\"", command.path), command);
  }
  for (const CommandWords& command : commands) {
    if (!command.path.empty() && command.path.find(' ') == std::string::npos) row(command.path + "\\ *", command);
  }
  row("*", commands.front());
  script += R"(  esac
  if ((COMP_CWORD == 1)); then words="@TOP@"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _gnomon gnomon
)";
  script.replace(script.find("@TOP@"), 5, joined(commands.front().words));
  return script;
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  std::string script =
      "#compdef gnomon\n_gnomon() {\n  local -a words_here\n  local path_here=\"\"\n"
      "  ((CURRENT > 2)) && path_here=\"${words[2]}\"\n"
      "  ((CURRENT > 3)) && [[ \"${words[2]}\" == plans ]] && path_here+=\" ${words[3]}\"\n"
      "  case \"$path_here\" in\n";
  for (const CommandWords& command : commands) {
    script += fmt::format("    '{}') words_here=(", command.path);
    for (const Word& word : command.words) {
      std::string quoted;
      for (const char c : word.help) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      script += fmt::format(" '{}:{}'", word.text, quoted);
    }
    script += ") ;;\n";
  }
  return script +
         "  esac\n  _describe 'gnomon' words_here || _files\n}\n"
         "if [[ \"${funcstack[1]}\" == _gnomon ]]; then _gnomon \"$@\"; else compdef _gnomon gnomon; fi\n";
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string script = "# fish completion for gnomon\n";
  for (const CommandWords& command : commands) {
    const std::size_t blank = command.path.find(' ');
    std::string condition = "__fish_use_subcommand";
    if (!command.path.empty()) condition = "__fish_seen_subcommand_from " + command.path.substr(0, blank);
    if (blank != std::string::npos) condition += "; and __fish_seen_subcommand_from " + command.path.substr(blank + 1);
    for (const Word& word : command.words) {
      const bool option = word.text.starts_with("--");
      script += fmt::format("complete -c gnomon -n '{}' {} {} -d '{}'\n", condition, option ? "-l" : "-f -a",
                            option ? word.text.substr(2) : word.text, escaped(word.help, "'\\"));
    }
  }
  return script;
}

}  // namespace

void add_completion(CLI::App& app, Session&) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->footer(
      "\nExamples:\n  source <(gnomon completion bash)\n  gnomon completion fish > "
      "~/.config/fish/completions/gnomon.fish");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    std::vector<CommandWords> commands;
    collect(app, "", commands);
    fmt::print("{}", *shell == "bash"  ? bash_script(commands)
                     : *shell == "zsh" ? zsh_script(commands)
                                       : fish_script(commands));
  });
}

}  // namespace gnomon::cli

//! Completions for bash, zsh and fish, written from the table of commands.
//!
//! The names of tubes are asked for when they are wanted, from the server that
//! the line names so far; a server that does not answer completes nothing.

use crate::command::{Command, GLOBAL, Invocation, Kind, Opt};
use crate::failure::{Failure, Outcome, Status};
use crate::text::output::print;

pub const COMPLETION: Command = Command {
    name: "completion",
    operands: "bash|zsh|fish",
    operand_kind: Kind::Words(&["bash", "zsh", "fish"]),
    about: "write the completion for a shell",
    run: write_completion,
    ..Command::BLANK
};

fn write_completion(invocation: &Invocation) -> Outcome<Status> {
    let commands: Vec<_> = invocation.commands().collect();
    match invocation.operands() {
        [shell] => match shell.as_str() {
            "bash" => print(bash(&commands)),
            "zsh" => print(zsh(&commands)),
            "fish" => print(fish(&commands)),
            other => Err(Failure::Usage(format!(
                "'{other}' is not bash, zsh or fish"
            ))),
        },
        _ => Err(Failure::Usage("for which shell? bash, zsh or fish".into())),
    }
}

/// A command's own options, and those of all.
fn options(command: &Command) -> Vec<Opt> {
    [
        (command.options)(),
        crate::command::described(command.common_settings()),
    ]
    .concat()
}

/// The names of an option as they are typed.
fn names(option: &Opt) -> impl Iterator<Item = String> {
    let short = (!option.short.is_empty()).then(|| format!("-{}", option.short));
    short.into_iter().chain([format!("--{}", option.long)])
}

fn command_names(commands: &[&Command]) -> String {
    commands
        .iter()
        .map(|command| command.name)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The names of the options that may stand before a command and have a value.
fn global_with_value() -> Vec<String> {
    let options = GLOBAL.iter().map(|(option, _)| option);
    let with_value = options.filter(|option| !option.value.is_empty());
    with_value.flat_map(names).collect()
}

/// For bash, without its completion package.
fn bash(commands: &[&Command]) -> String {
    let global: Vec<_> = GLOBAL
        .iter()
        .flat_map(|(option, _)| names(option))
        .collect();
    let global = global.join(" ");
    let with_value = global_with_value().join("|");
    let mut cases = String::new();
    for command in commands {
        let words: Vec<_> = options(command).iter().flat_map(names).collect();
        cases += &format!(
            "    {})\n        options='{}'\n",
            command.name,
            words.join(" ")
        );
        cases += "        case $previous in\n";
        for option in options(command)
            .iter()
            .filter(|option| !option.value.is_empty())
        {
            let names: Vec<_> = names(option).collect();
            cases += &format!(
                "        {}) {} ;;\n",
                names.join("|"),
                in_bash(option.kind, commands)
            );
        }
        cases += &format!(
            "        *) {} ;;\n        esac ;;\n",
            in_bash(command.operand_kind, commands)
        );
    }
    format!(
        r#"# Completion of beanpole for bash, written by 'beanpole completion bash'.
_beanpole() {{
    local word command='' previous='' options='{global}' kind='' index=1
    local -a address=()
    local current=${{COMP_WORDS[COMP_CWORD]}}
    while ((index < COMP_CWORD)); do
        word=${{COMP_WORDS[index]}}
        if [[ $word == -a || $word == --addr ]]; then
            # Bash splits a word at its colons.
            local value=${{COMP_WORDS[index + 1]}}
            ((index += 2))
            while [[ ${{COMP_WORDS[index]}} == : ]] && ((index < COMP_CWORD)); do
                value+=:${{COMP_WORDS[index + 1]}}
                ((index += 2))
            done
            address=(-a "$value")
            previous=$value
            continue
        fi
        if [[ -z $command && $word == @({with_value}) ]]; then
            ((index += 2))
            continue
        fi
        if [[ -z $command && $word != -* ]]; then
            command=$word
            previous=''
        else
            previous=$word
        fi
        ((index++))
    done
    ((index > COMP_CWORD)) && return
    case $command in
    '') kind=words:'{}' ;;
{cases}    esac
    COMPREPLY=()
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        return
    fi
    case $kind in
    tube) mapfile -t COMPREPLY < <(compgen -W "$(beanpole "${{address[@]}}" tubes --names 2>/dev/null)" -- "$current") ;;
    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    directory) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    program) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
    words:*) mapfile -t COMPREPLY < <(compgen -W "${{kind#words:}}" -- "$current") ;;
    esac
}}
complete -F _beanpole beanpole
"#,
        command_names(commands)
    )
}

fn in_bash(kind: Kind, commands: &[&Command]) -> String {
    match kind {
        Kind::Free => "kind=''".into(),
        Kind::Tube => "kind=tube".into(),
        Kind::File => "kind=file".into(),
        Kind::WordThenDirectories(words) => {
            let words = words.join(" ");
            format!("[[ -z $previous ]] && kind=words:'{words}' || kind=directory")
        }
        Kind::Program => "kind=program".into(),
        Kind::Words(words) => format!("kind=words:'{}'", words.join(" ")),
        Kind::CommandOr(word) => format!("kind=words:'{} {word}'", command_names(commands)),
    }
}

/// For zsh.
fn zsh(commands: &[&Command]) -> String {
    let global = GLOBAL
        .iter()
        .map(|(option, _)| zsh_option(option, commands));
    let global: Vec<_> = global.collect();
    let mut described = String::new();
    let mut cases = String::new();
    for command in commands {
        described += &format!(
            "        '{}:{}'\n",
            command.name,
            in_zsh_quotes(command.about)
        );
        cases += &format!("        {})\n            _arguments -S", command.name);
        for option in &options(command) {
            cases += &format!(" \\\n                {}", zsh_option(option, commands));
        }
        let operands = match command.operand_kind {
            Kind::Free => "*:operand:".to_owned(),
            Kind::Program => "*::command:_normal".to_owned(),
            Kind::WordThenDirectories(words) => {
                format!("1:what:({})' '*:directory:_directories", words.join(" "))
            }
            kind => format!("*:operand:{}", in_zsh(kind, commands)),
        };
        cases += &format!(" \\\n                '{operands}' ;;\n");
    }
    format!(
        r#"#compdef beanpole
# Completion of beanpole for zsh, written by 'beanpole completion zsh'.
_beanpole_tubes() {{
    local -a tubes
    tubes=(${{(f)"$(beanpole $beanpole_address tubes --names 2>/dev/null)"}})
    compadd -a tubes
}}
_beanpole() {{
    local state line
    local -a commands beanpole_address
    commands=(
{described}    )
    integer place=${{words[(I)(-a|--addr)]}}
    ((place && place + 1 < CURRENT)) && beanpole_address=(-a ${{words[place + 1]}})
    _arguments -C -S {} '1:command:->command' '*::argument:->argument'
    case $state in
    command) _describe command commands ;;
    argument)
        case $words[1] in
{cases}        esac ;;
    esac
}}
if [[ $funcstack[1] == _beanpole ]]; then
    _beanpole "$@"
else
    compdef _beanpole beanpole
fi
"#,
        global.join(" "),
    )
}

fn zsh_option(option: &Opt, commands: &[&Command]) -> String {
    let names: Vec<_> = names(option).collect();
    let about = in_zsh_quotes(option.about)
        .replace('[', "\\[")
        .replace(']', "\\]");
    let value = match option.value {
        "" => String::new(),
        value => format!(
            ":{}:{}",
            in_zsh_quotes(value),
            in_zsh(option.kind, commands)
        ),
    };
    let repeat = if option.many { "*" } else { "" };
    match (names.as_slice(), option.many) {
        ([only], _) => format!("'{repeat}{only}[{about}]{value}'"),
        (several, true) => format!("'*'{{{}}}'[{about}]{value}'", several.join(",")),
        (several, false) => {
            format!(
                "'({})'{{{}}}'[{about}]{value}'",
                several.join(" "),
                several.join(",")
            )
        }
    }
}

fn in_zsh(kind: Kind, commands: &[&Command]) -> String {
    match kind {
        Kind::Free => String::new(),
        Kind::Tube => "_beanpole_tubes".into(),
        Kind::File => "_files".into(),
        Kind::WordThenDirectories(words) => format!("({})", words.join(" ")),
        Kind::Program => "_command_names".into(),
        Kind::Words(words) => format!("({})", words.join(" ")),
        Kind::CommandOr(word) => format!("({} {word})", command_names(commands)),
    }
}

/// For fish.
fn fish(commands: &[&Command]) -> String {
    let with_value = global_with_value().join(" ");
    let mut text = format!(
        r#"# Completion of beanpole for fish, written by 'beanpole completion fish'.
function __beanpole_address
    set -l words (commandline -opc)
    for index in (seq (count $words))
        if contains -- $words[$index] -a --addr; and test $index -lt (count $words)
            printf '%s\n' -a $words[(math $index + 1)]
            return
        end
    end
end
function __beanpole_tubes
    beanpole (__beanpole_address) tubes --names 2>/dev/null
end
function __beanpole_command
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case {with_value}
                set -e words[1]
            case '-*'
            case '*'
                echo $words[1]
                return
        end
        set -e words[1]
    end
    return 1
end
function __beanpole_is
    set -l command (__beanpole_command); and test $command = $argv[1]
end
complete -c beanpole -f
"#,
    );
    let no_command = "'not __beanpole_command >/dev/null'";
    for (option, _) in GLOBAL {
        text += &fish_option(no_command, option, commands);
    }
    for command in commands {
        let Command { name, about, .. } = command;
        text += &format!(
            "complete -c beanpole -n {no_command} -a {name} -d '{}'\n",
            in_quotes(about)
        );
    }
    for command in commands {
        let condition = format!("'__beanpole_is {}'", command.name);
        for option in &options(command) {
            text += &fish_option(&condition, option, commands);
        }
        if let Some(what) = in_fish(command.operand_kind, commands) {
            text += &format!("complete -c beanpole -n {condition} {what}\n");
        }
    }
    text
}

fn fish_option(condition: &str, option: &Opt, commands: &[&Command]) -> String {
    let mut line = format!("complete -c beanpole -n {condition}");
    if !option.short.is_empty() {
        line += &format!(" -s {}", option.short);
    }
    line += &format!(" -l {} -d '{}'", option.long, in_quotes(option.about));
    if !option.value.is_empty() {
        // Of itself, fish offers files for a value.
        line += if option.kind == Kind::File {
            " -r"
        } else {
            " -x"
        };
        if let Some(what) = in_fish(option.kind, commands) {
            line += &format!(" {what}");
        }
    }
    line + "\n"
}

fn in_fish(kind: Kind, commands: &[&Command]) -> Option<String> {
    Some(match kind {
        Kind::Free => return None,
        Kind::Tube => "-a '(__beanpole_tubes)'".into(),
        Kind::File => "-F".into(),
        Kind::WordThenDirectories(words) => {
            let words = words.join(" ");
            format!(
                "-a '(test (count (commandline -opc)) -eq 2; and string split \" \" -- \"{words}\"; \
                 or __fish_complete_directories)'"
            )
        }
        Kind::Program => "-a '(__fish_complete_subcommand)'".into(),
        Kind::Words(words) => format!("-a '{}'", words.join(" ")),
        Kind::CommandOr(word) => format!("-a '{} {word}'", command_names(commands)),
    })
}

/// Text that stands between single quotes.
fn in_quotes(text: &str) -> String {
    text.replace('\'', "’")
}

/// The same, where zsh would take a colon for an end.
fn in_zsh_quotes(text: &str) -> String {
    in_quotes(text).replace(':', "\\:")
}

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# fusor.bash: completion for bash (and zsh, after "autoload -U bashcompinit; bashcompinit"). Commands and options are those
# that the installed command's help tells.
_fusor() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} program=${COMP_WORDS[0]} command= commands i words
    commands="$("$program" --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')"
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        ''|*[!a-z]*) ;;
        *) if grep -qx -e "${COMP_WORDS[i]}" <<<"$commands"; then command=${COMP_WORDS[i]}; break; fi ;;
        esac
    done
    # --option=value comes as three words
    if [[ $word == = ]]; then word=; elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
    case $previous in
    # ---- bash-words, made from tools/manual.c by `make generated`: do not edit ----
    --target) words='v2 x86-64-v2 v3 x86-64-v3 v4 x86-64-v4 v3+avxvnni v4+vnni v4+bf16 v4+amxint8 v4+amxbf16 v4+amxfp16 sm_70 sm_80 sm_90a' ;;
    --cache) words='off ro rw refresh' ;;
    --device) words='cpu cuda cuda:0 auto reference' ;;
    --math) words='precise fast' ;;
    --color) words='auto always never' ;;
    --stage) words='ir opt plan llvm asm obj header ptx cubin' ;;
    --peers) words='found all none numpy numba torch jax onnxruntime torch.compile' ;;
    --format) words='text json dot html' ;;
    --sort) words='key function kind target size compile hits age' ;;
    # ---- end of bash-words ----
    *)
        if [[ $word == -* ]]; then words="$("$program" ${command:+"$command"} --help 2>/dev/null | grep -o -e '--[a-z-]*' | sort -u)"
        elif [[ -z $command || $command == help ]]; then words=$commands
        elif [[ $command == bench ]]; then words="$("$program" bench --list 2>/dev/null | sed -n 's/^\([a-z]*\) .*/\1/p' | sort -u)"
        elif [[ $command == cache && ( $previous == show || $previous == disasm ) ]]; then words="$("$program" cache list 2>/dev/null | sed '1d; s/ .*//')"
        elif [[ $command == cache && $previous == cache ]]; then words='list show disasm why verify prune clear stats path warm export import'
        fi ;;
    esac
    if [[ -n $words ]]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    else mapfile -t COMPREPLY < <(compgen -f -- "$word"); fi
}
complete -o filenames -F _fusor fusor

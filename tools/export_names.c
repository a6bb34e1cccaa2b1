/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* export_names.c: the names of a function and its arguments as C and C++ have them. The header keeps names of its own
 * out of the way: all begin with fusor_aot or FUSOR_AOT and end in no underscore, or are local to functions that have
 * no name of the program's. */
#include "export.h"
#include <ctype.h>

/* Of C23, C++26 and GNU C; those that begin with an underscore are no name anyway. */
static const char keywords[] =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return co_yield "
    "compl concept const const_cast consteval constexpr constinit continue contract_assert decltype default delete do "
    "double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast "
    "requires restrict return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void "
    "volatile while xor xor_eq ";
/* Other macros that stand for something without being called. */
static const char macros[] =
    " I complex errno i386 imaginary linux math_errhandling noreturn stderr stdin stdout unix ";
/* What a function may not be, beside these: functions of C's library, which compilers know without any header; what
 * stdlib.h and string.h declare beyond C; the two names that C++ has at the top. By subject: mathematics (also with a
 * type behind them), then the others. */
static const char mathematics[] =
    " abs acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi cabs cacos cacosh canonicalize carg "
    "casin "
    "casinh catan catanh cbrt ccos ccosh ceil cexp cimag clog clog10 compoundn conj copysign cos cosh cospi cpow cproj "
    "creal csin csinh csqrt ctan ctanh dadd ddiv dfma dmul drem dsqrt dsub erf erfc exp exp10 exp10m1 exp2 exp2m1 "
    "expm1 fabs fadd fdim fdiv ffma finite floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmin "
    "fminimum fminimum_mag fminimum_mag_num fminimum_num fmod fmul fpclassify frexp fromfp fromfpx fsqrt fsub gamma "
    "getpayload hypot ilogb iscanonical iseqsig isfinite isgreater isgreaterequal isinf isless islessequal "
    "islessgreater isnan isnormal issignaling issubnormal isunordered iszero j0 j1 jn ldexp lgamma llogb llrint "
    "llround log log10 log10p1 log1p log2 log2p1 logb logp1 lrint lround modf nan nearbyint nextafter nextdown "
    "nexttoward nextup pow pow10 pown powr remainder remquo rint rootn round roundeven rsqrt scalb scalbln scalbn "
    "setpayload setpayloadsig significand signbit sin sincos sinh sinpi sqrt tan tanh tanpi tgamma totalorder "
    "totalordermag trunc ufromfp ufromfpx y0 y1 yn ";
static const char library[] =
    " a64l abort aligned_alloc alloca arc4random arc4random_buf arc4random_uniform asctime asctime_r asprintf assert "
    "at_quick_exit atexit atof atoi atol atoll basename bcmp bcopy bsearch btowc bzero c16rtomb c32rtomb c8rtomb "
    "call_once calloc canonicalize_file_name clearenv clearerr clock ctime ctime_r dcgettext dgettext difftime div "
    "drand48 drand48_r ecvt ecvt_r erand48 erand48_r execl execle execlp execv execve execvp exit explicit_bzero "
    "fclose "
    "fcvt fcvt_r feclearexcept fegetenv fegetexceptflag fegetmode fegetround feholdexcept feof feraiseexcept ferror "
    "fesetenv fesetexcept fesetexceptflag fesetmode fesetround fetestexcept fetestexceptflag feupdateenv fflush ffs "
    "ffsimax ffsl ffsll fgetc fgetpos fgets fgetwc fgetws fopen fork fprintf fputc fputs fputwc fputws fread free "
    "free_aligned_sized free_sized freopen fscanf fseek fsetpos ftell fwide fwprintf fwrite fwscanf gamma_r gcvt getc "
    "getchar getenv getloadavg getpt getsubopt gettext getwc getwchar gmtime gmtime_r grantpt imaxabs imaxdiv index "
    "initstate initstate_r isalnum isalpha isascii isblank iscntrl isdigit isgraph islower isprint ispunct isspace "
    "isupper iswalnum iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower iswprint iswpunct iswspace "
    "iswupper iswxdigit isxdigit jrand48 jrand48_r kill_dependency l64a labs lcong48 lcong48_r ldiv lgamma_r llabs "
    "lldiv localeconv localtime localtime_r longjmp lrand48 lrand48_r main malloc mblen mbrlen mbrtoc16 mbrtoc32 "
    "mbrtoc8 mbrtowc mbsinit mbsrtowcs mbstowcs mbtowc memalignment memccpy memchr memcmp memcpy memfrob memmem "
    "memmove mempcpy memrchr memset memset_explicit mkdtemp mkostemp mkostemp64 mkostemps mkostemps64 mkstemp "
    "mkstemp64 mkstemps mkstemps64 mktemp mktime mrand48 mrand48_r nrand48 nrand48_r offsetof on_exit perror posix "
    "posix_memalign posix_openpt printf pselect ptsname ptsname_r putc putchar putenv puts putwc putwchar qecvt "
    "qecvt_r "
    "qfcvt qfcvt_r qgcvt qsort qsort_r quick_exit raise rand rand_r random random_r rawmemchr realloc reallocarray "
    "realpath remove rename rewind rindex rpmatch scanf secure_getenv seed48 seed48_r select setbuf setenv setjmp "
    "setlocale setstate setstate_r setvbuf sigabbrev_np sigdescr_np signal snprintf sprintf srand srand48 srand48_r "
    "srandom srandom_r sscanf std stpcpy stpncpy strcasecmp strcasecmp_l strcasestr strcat strchr strchrnul strcmp "
    "strcoll strcoll_l strcpy strcspn strdup strdupa strerror strerror_l strerror_r strerrordesc_np strerrorname_np "
    "strfmon strfromd strfromf strfroml strfry strftime strlcat strlcpy strlen strncasecmp strncasecmp_l strncat "
    "strncmp strncpy strndup strndupa strnlen strpbrk strrchr strsep strsignal strspn strstr strtod strtod_l strtof "
    "strtof_l strtok strtok_r strtol strtol_l strtold strtold_l strtoll strtoll_l strtoq strtoul strtoul_l strtoull "
    "strtoull_l strtouq strverscmp strxfrm strxfrm_l swprintf swscanf system time timegm timespec_get "
    "timespec_getres tmpfile tmpnam toascii tolower toupper towctrans towlower towupper ungetc ungetwc unlockpt "
    "unsetenv va_arg va_copy va_end va_start valloc vasprintf vfork vfprintf vfscanf vfwprintf vfwscanf vprintf vscanf "
    "vsnprintf vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf wcrtomb wcscat wcschr wcscmp wcscoll wcscpy "
    "wcscspn "
    "wcsftime wcslen wcsncat wcsncmp wcsncpy wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstok wcstol "
    "wcstold wcstoll wcstombs wcstoul wcstoull wcsxfrm wctob wctomb wctrans wctype wmemchr wmemcmp wmemcpy wmemmove "
    "wmemset wprintf wscanf "
    "BUFSIZ EOF EXIT_FAILURE EXIT_SUCCESS FD_CLR FD_ISSET FD_SET FD_SETSIZE FD_ZERO HUGE_VAL INFINITY MB_CUR_MAX NAN "
    "NFDBITS NULL WCONTINUED WEXITED WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG WNOWAIT "
    "WSTOPPED WSTOPSIG WTERMSIG WUNTRACED ";

/* Is the word of n characters one of these? */
static bool is_in(const char *words, const char *word, size_t n) {
    for (const char *at = words + 1; *at; at += strcspn(at, " ") + 1)
        if (strcspn(at, " ") == n && memcmp(at, word, n) == 0) return true;
    return false;
}

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }
static bool ends(const char *name, const char *with) {
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* As macros are written (EOF, E2BIG, M_PIl, PRId64), a capital and then no small letter; and as those of signal.h and
 * sys/stat.h are. */
static bool is_like_macro(const char *name) {
    if (begins(name, "sa_") || begins(name, "si_") || begins(name, "sigev_") || begins(name, "st_")) return true;
    return isupper((unsigned char)name[0]) && name[1] && !islower((unsigned char)name[1]);
}

static bool is_of_library(const char *name) {
    static const char *const types[] = {"",     "f",    "l",    "f16", "f32", "f64",
                                        "f128", "f32x", "f64x", "d32", "d64", "d128"};
    static const char *const patterns[] = {"atomic_", "cnd_", "mtx_", "stdc_", "thrd_", "tss_"};
    static const char *const limits[] = {"_C", "_ENDIAN", "_MAX", "_MIN", "_WIDTH"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (ends(name, types[i]) && is_in(mathematics, name, strlen(name) - strlen(types[i]))) return true;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (begins(name, patterns[i])) return true;
    for (size_t i = 0; i < sizeof limits / sizeof *limits && is_like_macro(name); i++)
        if (ends(name, limits[i])) return true;
    return is_in(library, name, strlen(name));
}

/* Can a program in C or C++ have something else of this name where the header has it? Types end in _t; nothing ends in
 * an underscore. */
static bool is_reserved(const char *name, bool is_function) {
    const size_t n = strlen(name);
    if (ends(name, "_")) return false;
    if (is_in(keywords, name, n) || is_in(macros, name, n) || ends(name, "_t")) return true;
    if (begins(name, "fusor_aot") || begins(name, "FUSOR_AOT")) return true;
    return is_function ? is_of_library(name) : is_like_macro(name);
}

typedef struct namer {
    tool *t;
    fu_vec(const char *) taken;
} namer;

static bool is_taken(const namer *x, const char *name) {
    for (uint32_t i = 0; i < x->taken.n; i++)
        if (strcmp(x->taken.at[i], name) == 0) return true;
    return false;
}

/* The name with one underscore for each run of characters that C has not. Names that begin with an underscore, or have
 * two in a row, belong to compilers: no name here does. */
static const char *add_name(namer *x, const char *prefix, const char *name) {
    const char *const whole = fu_format(&x->t->arena, "%s%s", prefix, name);
    fu_str s;
    fu_str_init(&s, &x->t->arena);
    if (!isalpha((unsigned char)whole[0])) fu_str_addc(&s, 'v');
    for (const char *at = whole; *at; at++) {
        const bool is_kept = isalnum((unsigned char)*at);
        if (is_kept || !s.n || s.at[s.n - 1] != '_') fu_str_addc(&s, is_kept ? *at : '_');
    }
    const char *made = s.at;
    if (is_reserved(made, x->taken.n == 0) || is_taken(x, made)) {
        if (!ends(made, "_")) fu_str_addc(&s, '_');
        made = s.at;
        for (int i = 2; is_taken(x, made); i++) made = fu_format(&x->t->arena, "%s%d_", s.at, i);
    }
    fu_push(&x->t->arena, &x->taken, made);
    return made;
}

export_names export_make_names(tool *t, const ir_graph *g) {
    const uint32_t n_dims = ir_size_symbol_count(g->sizes);
    namer x = {.t = t};
    export_names all = {.param = FU_NEW_N(&t->arena, const char *, g->params.n + 1),
                        .result = FU_NEW_N(&t->arena, const char *, g->results.n + 1),
                        .dim = FU_NEW_N(&t->arena, const char *, n_dims + 1)};
    all.function = add_name(&x, "", g->name); /* the first: what is visible in the whole program */
    for (uint32_t p = 0; p < g->params.n; p++) all.param[p] = add_name(&x, "", g->params.at[p].name);
    for (uint32_t r = 0; r < g->results.n; r++) {
        const int alias = g->results.at[r].alias;
        all.result[r] = alias >= 0 ? all.param[alias] : add_name(&x, "result_", g->results.at[r].name);
    }
    for (uint32_t i = 0; i < n_dims; i++) all.dim[i] = add_name(&x, "", ir_size_symbol_name(g->sizes, i));
    return all;
}

//! What a line of Python says, and which class it belongs to.

/// Most characters of a line that are kept.
const WIDTH: usize = 200;

/// Returns the source of a line, from 1, without its comment and with single spaces; nothing of a line that is not
/// there.
pub fn statement(source: &str, line: u32) -> String {
    let Some(text) = at(source, line) else { return String::new() };
    let words: Vec<&str> = code(text).split_whitespace().collect();
    words.join(" ").chars().take(WIDTH).collect()
}

/// Returns a function with the class around it, as `LMHead.forward`, for a line of it.
pub fn qualified(source: &str, line: u32, function: &str) -> String {
    class(source, line).map_or_else(|| function.to_owned(), |class| format!("{class}.{function}"))
}

/// Returns the innermost class around a line.
fn class(source: &str, line: u32) -> Option<&str> {
    let above: Vec<&str> = source.lines().take(line as usize).collect();
    let mut inside = indent(above.last()?);
    for text in above.iter().rev().skip(1) {
        let (words, depth) = (text.trim_start(), indent(text));
        let is_block = words.starts_with("def ") || words.starts_with("async def ") || words.starts_with("class ");
        if depth >= inside || !is_block {
            continue;
        }
        if let Some(name) = words.strip_prefix("class ") {
            let end = name.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(name.len());
            return name.get(..end);
        }
        inside = depth;
    }
    None
}

fn at(source: &str, line: u32) -> Option<&str> {
    source.lines().nth((line as usize).checked_sub(1)?)
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// A line without its comment.
fn code(text: &str) -> &str {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (None, '#') => return text.get(..at).unwrap_or(text),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "class Net(nn.Module):
    width = 3

    def forward(self, x):
        # A comment.
        return self.out(  x ,'#')  # logits

    class Inner:
        def f(self):
            def g():
                return 1

def main():
    net = Net()
";

    #[test]
    fn a_statement_has_no_comment_and_its_class() {
        assert_eq!(statement(SOURCE, 6), "return self.out( x ,'#')");
        assert_eq!((statement(SOURCE, 99), statement(SOURCE, 0)), (String::new(), String::new()));
        assert_eq!(qualified(SOURCE, 6, "forward"), "Net.forward");
        assert_eq!(qualified(SOURCE, 11, "g"), "Inner.g");
        assert_eq!(qualified(SOURCE, 14, "main"), "main");
        assert_eq!(qualified("", 3, "f"), "f");
    }
}

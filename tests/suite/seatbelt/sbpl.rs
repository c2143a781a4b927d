//! Parses Seatbelt's profile language: expressions in parentheses, strings, regular expressions,
//! comments.

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    List(Vec<Expression>),
    Symbol(String),
    Text(String),
    Regex(String),
}

impl Expression {
    pub fn list(&self) -> &[Expression] {
        match self {
            Expression::List(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    pub fn symbol(&self) -> &str {
        match self {
            Expression::Symbol(name) => name,
            other => panic!("not a symbol: {other:?}"),
        }
    }
}

/// Panics if parentheses or quotes are not balanced.
pub fn parse(text: &str) -> Vec<Expression> {
    let mut reader = Reader { rest: text.chars().collect::<Vec<_>>().into_iter().peekable() };
    let mut found = Vec::new();
    while reader.skip_blanks() {
        found.push(reader.expression());
    }
    found
}

struct Reader {
    rest: std::iter::Peekable<std::vec::IntoIter<char>>,
}

impl Reader {
    /// Skips blanks and comments, and returns whether more text follows.
    fn skip_blanks(&mut self) -> bool {
        while let Some(next) = self.rest.peek().copied() {
            match next {
                ';' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                c if c.is_whitespace() => {
                    self.rest.next();
                }
                _ => return true,
            }
        }
        false
    }

    fn expression(&mut self) -> Expression {
        match self.rest.next().expect("an expression") {
            '(' => {
                let mut items = Vec::new();
                loop {
                    assert!(self.skip_blanks(), "a parenthesis is not closed");
                    if self.rest.next_if_eq(&')').is_some() {
                        return Expression::List(items);
                    }
                    items.push(self.expression());
                }
            }
            ')' => panic!("there is a parenthesis too many"),
            '"' => Expression::Text(self.string(true)),
            '#' => {
                assert_eq!(self.rest.next(), Some('"'), "only #\"…\" is known");
                Expression::Regex(self.string(false))
            }
            first => {
                let mut name = String::from(first);
                while let Some(next) = self.rest.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    name.push(next);
                }
                Expression::Symbol(name)
            }
        }
    }

    fn string(&mut self, escapes: bool) -> String {
        let mut text = String::new();
        loop {
            match self.rest.next().expect("a string is not closed") {
                '"' => return text,
                '\\' if escapes => text.push(self.rest.next().expect("an escaped character")),
                next => text.push(next),
            }
        }
    }
}

#[test]
fn the_sbpl_parser_accepts_valid_and_rejects_invalid_text() {
    let expressions = parse("; (comment\n(allow a* (regex #\"^\\.x\\(\")) \"a\\\"b)\"");
    assert_eq!(expressions.len(), 2);
    assert_eq!(expressions[1], Expression::Text("a\"b)".into()));
    assert_eq!(expressions[0].list()[2].list()[1], Expression::Regex("^\\.x\\(".into()));
    for wrong in ["(a", "a)", "(a \"b)", "\"a"] {
        assert!(std::panic::catch_unwind(|| parse(wrong)).is_err(), "{wrong}");
    }
}
